"""Keeping house: what takes room, deleting what nobody needs, and a store as one file for elsewhere."""

import json
import os
import re
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from lmsweep.errors import UserError
from lmsweep.files import DamagedError, read_json, replacing, sha256_of
from lmsweep.store.folder import JobFolder
from lmsweep.store.store import KINDS, Store, evaluations_of, overview
from lmsweep.store.sweeps import runs_by_sweep, runs_of


def collect_garbage(outputs: Path, *, dry_run: bool = False) -> tuple[int, int, list[str]]:
    """Delete checkpoints of finished runs that no figure uses, and files of killed processes.

    Returns how many files that were, their size, and sentences about figures whose records are damaged: which
    runs these use is unknown, so all checkpoints stay. Results stay; only attacks need a checkpoint.
    Links are not followed: what is behind them is not the store's.
    """
    garbage, damaged = _unused_weights(outputs, Store(outputs).folders())
    stores = [Store(outputs, kind) for kind in KINDS]
    for folder in (folder for store in stores for folder in store.folders()):
        if not folder.path.is_symlink() and not folder.is_running():
            garbage += folder.leftovers()
    graves = [grave for store in stores for grave in store.graves()]
    buried = [path for grave in graves for path in grave.rglob("*") if path.is_file()]
    size = sum(path.lstat().st_size for path in (*garbage, *buried))
    if not dry_run:
        for path in garbage:
            path.unlink(missing_ok=True)
        for grave in graves:
            shutil.rmtree(grave, ignore_errors=True)  # its process may live, and delete it at the same time
    return len(garbage) + len(buried), size, damaged


def drop_weights(outputs: Path, runs: Iterable[str], apart: Path | None = None) -> tuple[int, int]:
    """Delete checkpoints of those finished `runs` that no drawn figure uses; how many, and their size.

    `apart` is the record of a figure that can do without. While a record is damaged, all checkpoints stay.
    """
    garbage, _ = _unused_weights(outputs, map(Store(outputs).folder, runs), apart)
    size = sum(path.lstat().st_size for path in garbage)
    for path in garbage:
        path.unlink(missing_ok=True)
    return len(garbage), size


def usage(outputs: Path) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """What takes room: by kind of file, files and bytes; by sweep, runs and bytes (of shared runs, too)."""
    counts, sizes, runs = Counter[str](), Counter[str](), Counter[str]()
    for folder, _, files in os.walk(outputs):
        parts = Path(folder).relative_to(outputs).parts
        for name in files:
            size = Path(folder, name).lstat().st_size
            kind = parts[0] if parts else "other"
            if kind == "runs" and len(parts) > 1:
                runs[parts[1]] += size
                kind = f"runs: {'checkpoints' if name.endswith('.ckpt') else 'all else'}"
            counts[kind] += 1
            sizes[kind] += size
    asked = runs_by_sweep(outputs, []).items()
    by_sweep = {name: (len(ids & runs.keys()), sum(runs[run] for run in ids)) for name, ids in asked}
    return {kind: (counts[kind], sizes[kind]) for kind in counts}, by_sweep


def _used_by_figures(outputs: Path, apart: Path | None = None) -> tuple[set[str], list[str]]:
    """The runs behind the figures that have been drawn: each figure's record lists them under `runs`.

    Also a sentence about every record that cannot be read.
    """
    records = sorted((outputs / "figures").glob("*/*.json"))
    if not records:
        raise UserError(
            f"There is no figure in {outputs / 'figures'}, so every checkpoint would be deleted; draw one "
            "first (make reproduce-figure), or delete runs with `lmsweep store rm`."
        )
    used: set[str] = set()
    damaged = []
    for record in (record for record in records if record != apart):
        remedy = f"draw it again with `make reproduce-figure FIG={record.stem} SCALE={record.parent.name}`"
        try:
            runs = read_json(record, remedy).get("runs")
            if not isinstance(runs, list):
                raise DamagedError(record, f"runs is {runs!r}", remedy)
            used |= {str(run) for run in runs}
        except DamagedError as error:
            damaged.append(str(error))
    return used, damaged


def _unused_weights(
    outputs: Path, folders: Iterable[JobFolder], apart: Path | None = None
) -> tuple[list[Path], list[str]]:
    """Checkpoints of finished runs that no drawn figure uses; none, and why, while a record is damaged."""
    used, damaged = _used_by_figures(outputs, apart)
    idle = [folder for folder in folders if folder.id not in used and not folder.path.is_symlink()]
    kept = [
        path
        for folder in idle
        for path in (folder.checkpoint, folder.last)
        if path.exists() and folder.read_status().get("state") == "done"
    ]
    return [] if damaged else kept, damaged


def remove(
    outputs: Path, *, names: Sequence[str], sweep: str | None, failed: bool, dry_run: bool = False
) -> tuple[int, int]:
    """Delete runs and the evaluations of their checkpoints; all that are asked for, or none.

    `names` are ids, or beginnings that no other id has; `sweep` stands for all runs of a sweep; `failed`
    keeps the failed ones among these, or among all runs when neither is given. Returns how many runs and
    evaluations that were.
    """
    store = Store(outputs)
    names = [store.find(name).id for name in names]
    asked = set(names) | (runs_of(outputs, sweep) if sweep else set())
    rows = {row["run"]: row for row in overview(outputs, asked if names or sweep else None)}
    chosen = [name for name, row in rows.items() if not failed or row["state"] == "failed"]
    chosen = [name for name in chosen if store.folder(name).path.is_dir()]
    for name in chosen:
        if rows[name]["state"] == "running":
            raise UserError(f"Run {name} is being trained by process {rows[name]['pid']}; stop that first.")
        if rows[name]["state"] == "queued":
            raise UserError(f"Run {name} waits for Slurm job {rows[name]['slurm']}; scancel that first.")
    evaluations = evaluations_of(outputs, set(chosen))
    if not dry_run:
        for name in evaluations:
            Store(outputs, "evaluations").remove(name)
        for name in chosen:
            store.remove(name)
    return len(chosen), len(evaluations)


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
        for kind in KINDS:
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
