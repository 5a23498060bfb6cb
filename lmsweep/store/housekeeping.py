"""Delete what is not needed any more."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from lmsweep.errors import UserError
from lmsweep.store.overview import overview
from lmsweep.store.store import JobFolder, Store
from lmsweep.store.sweeps import runs_of

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, ten times faster


def collect_garbage(outputs: Path, *, dry_run: bool = False) -> tuple[int, int]:
    """Delete checkpoints of finished runs that no figure uses, and files of killed processes.

    Returns how many files that were and their size. Results stay; a checkpoint is only needed to attack it.
    """
    used = _used_by_figures(outputs)
    garbage = [path for folder in Store(outputs).folders() for path in _garbage(folder, used)]
    garbage += [path for folder in Store(outputs, "evaluations").folders() for path in _leftovers(folder)]
    graves = [grave for kind in ("runs", "evaluations") for grave in Store(outputs, kind).graves()]
    buried = [path for grave in graves for path in grave.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in (*garbage, *buried))
    if not dry_run:
        for path in garbage:
            path.unlink()
        for grave in graves:
            shutil.rmtree(grave, ignore_errors=True)  # its process may live, and delete it at the same time
    return len(garbage) + len(buried), size


def _used_by_figures(outputs: Path) -> set[str]:
    """The runs behind the figures that have been drawn: each figure's record lists them under `runs`."""
    records = sorted((outputs / "figures").glob("*/*.json"))
    if not records:
        raise UserError(
            f"There is no figure in {outputs / 'figures'}, so every checkpoint would be deleted; draw one "
            "first (make reproduce-figure), or delete runs with `lmsweep store rm`."
        )
    return {run for record in records for run in json.loads(record.read_bytes())["runs"]}


def _garbage(folder: JobFolder, used: set[str]) -> Iterator[Path]:
    status = folder.read_status()
    yield from _leftovers(folder)
    if status.get("state") == "done" and folder.id not in used:
        yield from (path for path in (folder.checkpoint, folder.last) if path.exists())


def _leftovers(folder: JobFolder) -> Iterator[Path]:
    """What a process left that was killed while it wrote."""
    if not folder.is_running():
        yield from folder.path.glob(".*.tmp")


def remove(
    outputs: Path, *, names: Sequence[str], sweep: str | None, failed: bool, dry_run: bool = False
) -> tuple[int, int]:
    """Delete runs and the evaluations of their checkpoints; all that are asked for, or none.

    `names` are ids; `sweep` stands for all runs of a sweep; `failed` keeps the failed ones among these, or
    among all runs when neither is given. Returns how many runs and evaluations that were.
    """
    store = Store(outputs)
    asked = set(names) | (runs_of(outputs, sweep) if sweep else set())
    rows = {row["run"]: row for row in overview(outputs, asked if names or sweep else None)}
    for name in names:
        if not store.folder(name).path.is_dir():
            raise UserError(f"There is no run {name} in {store.root}; `lmsweep status` lists them.")
    chosen = [name for name, row in rows.items() if not failed or row["state"] == "failed"]
    chosen = [name for name in chosen if store.folder(name).path.is_dir()]
    for name in chosen:
        if rows[name]["state"] == "running":
            raise UserError(f"Run {name} is being trained by process {rows[name]['pid']}; stop that first.")
        if rows[name]["state"] == "queued":
            raise UserError(f"Run {name} waits for Slurm job {rows[name]['slurm']}; scancel that first.")
    evaluations = list(_evaluations_of(outputs, set(chosen)))
    if not dry_run:
        for kind, ids in (("evaluations", evaluations), ("runs", chosen)):
            for name in ids:
                Store(outputs, kind).remove(name)
    return len(chosen), len(evaluations)


def _evaluations_of(outputs: Path, runs: set[str]) -> Iterator[str]:
    for folder in Store(outputs, "evaluations").folders():
        config = read_yaml(folder.config)
        if runs & {*config.get("targets", ()), config.get("source")}:
            yield folder.id


def read_yaml(path: Path) -> dict[str, Any]:
    """A frozen configuration; {} where it is missing or damaged."""
    try:
        content = yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506 - a safe loader, in C
    except (OSError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
