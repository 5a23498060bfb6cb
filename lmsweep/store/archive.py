"""A store as one file: for a paper's supplement, or for another machine."""

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from lmsweep.errors import UserError
from lmsweep.files import replacing, sha256_of
from lmsweep.store.overview import evaluations_of, overview

MANIFEST = "manifest.json"
# What an archive may hold: files of jobs, and the records of sweeps. So nothing is written anywhere else.
_NAME = re.compile(r"(runs|evaluations)/[0-9a-f]{12}/\w[\w.-]*|sweeps/\w[\w.-]*\.json")


def pack(outputs: Path, archive: Path, only: Iterable[str] | None = None, *, weights: bool = False) -> int:
    """Write finished runs, their evaluations and the records of sweeps; return how many runs these are.

    `only` these runs when given. Without `weights` the archive has what figures are drawn from, and no more.
    """
    chosen = None if only is None else set(only)
    runs = [row["run"] for row in overview(outputs, chosen) if row["state"] == "done"]
    if not runs:
        raise UserError(f"There is no finished run in {outputs} to pack; `lmsweep status` lists them.")
    files = [file for run in runs for file in _files(outputs / "runs" / run, weights)]
    measured = None if chosen is None else evaluations_of(outputs, chosen)
    rows = overview(outputs, measured, kind="evaluations")
    for name in [row["run"] for row in rows if row["state"] == "done"]:
        files += _files(outputs / "evaluations" / name, weights)
    files += sorted((outputs / "sweeps").glob("*.json"))
    sums = {str(file.relative_to(outputs)): sha256_of(file) for file in files}
    with replacing(archive) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(MANIFEST, json.dumps(sums, indent=1))
        for file in files:
            packed.write(file, str(file.relative_to(outputs)))
    return len(runs)


def _files(folder: Path, weights: bool) -> list[Path]:
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.is_symlink()]
    files = [file for file in files if not file.name.startswith(".")]
    return [file for file in files if weights or file.suffix != ".ckpt"]


def unpack(archive: Path, outputs: Path) -> tuple[int, int]:
    """Add the jobs of an archive to a store; return how many were added, and how many the store had already.

    What is there stays as it is. Every file is checked before the first one is put in place.
    """
    outputs.mkdir(parents=True, exist_ok=True)
    added = kept = 0
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=outputs) as temporary:
        try:
            with zipfile.ZipFile(archive) as packed:
                _extract(packed, Path(temporary))
        except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
            raise UserError(
                f"{archive} is no archive of `lmsweep store pack`, or damaged ({error})."
            ) from None
        for kind in ("runs", "evaluations"):
            for folder in sorted(Path(temporary, kind).glob("*")):
                placed = _place(folder, outputs / kind / folder.name)
                added, kept = added + placed, kept + (not placed)
        for record in sorted(Path(temporary, "sweeps").glob("*")):
            _place(record, outputs / "sweeps" / record.name)
    return added, kept


def _extract(packed: zipfile.ZipFile, folder: Path) -> None:
    """Write the files into a folder; ValueError unless they are those of the list, byte for byte."""
    sums = json.loads(packed.read(MANIFEST))
    names = set(packed.namelist()) - {MANIFEST}
    if names != set(sums):
        raise ValueError(f"{len(names ^ set(sums))} of its files are not those of its list")
    for name in sums:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name} is no file of a store")
    for name, expected in sums.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with packed.open(name) as source, path.open("wb") as file:
            shutil.copyfileobj(source, file)
        if sha256_of(path) != expected:
            raise ValueError(f"{name} was changed")


def _place(path: Path, goal: Path) -> bool:
    if goal.exists():
        return False
    goal.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, goal)
    return True
