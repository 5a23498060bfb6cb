"""Every job of a store at a glance: what `lmsweep status` and `lmsweep store export` show."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lmsweep.files import DamagedError
from lmsweep.store.index import Entry
from lmsweep.store.store import JobFolder, Store
from lmsweep.store.sweeps import runs_by_sweep

# `queued`: pending, and a Slurm job is going to train it. `abandoned`: its process is gone without a word;
# the next sweep takes it over. `damaged`: a file is not what was written; the next sweep does the work again.
STATES = ("done", "running", "queued", "failed", "pending", "abandoned", "damaged")
Row = dict[str, Any]


def overview(outputs: Path, only: Iterable[str] | None = None, kind: str = "runs") -> list[Row]:
    """One row per run, by id; `only` these when given; with another `kind`, per evaluation."""
    store = Store(outputs, kind)
    return [_row(store.folder(name), entry) for name, entry in store.entries(only).items()]


def _row(folder: JobFolder, entry: Entry) -> Row:
    status, results = entry
    try:
        state = status.get("state", "pending")
        if state == "running" and not folder.is_running(status):
            state = "abandoned"
        elif state == "pending" and "slurm" in status:
            state = "queued"
        row = {"run": folder.id, "state": state, **status.get("about", {})}
        if "slurm" in status:
            row["slurm"] = status["slurm"]
        if results is not None:
            row |= {"seconds": results["seconds"], **results.get("metrics", {})}
            row |= {"remarks": "; ".join(results["remarks"])} if results.get("remarks") else {}
        elif state in ("running", "abandoned"):
            row |= {"host": status["host"], "pid": status["pid"], "seconds": time.time() - status["started"]}
        elif "reason" in status:
            row["reason"] = status["reason"]
    except (OSError, KeyError, TypeError) as error:  # of a store that another version wrote
        return {"run": folder.id, "state": "damaged", "reason": f"{type(error).__name__}: {error}"}
    return row


def sweeps(outputs: Path, rows: Iterable[Row], damaged: list[str]) -> list[tuple[str, Counter[str]]]:
    """How many runs of each sweep are in which state; runs that were removed count as `missing`.

    `damaged` gets a sentence about every record that cannot be read.
    """
    states = {row["run"]: row["state"] for row in rows}
    merged = sorted(runs_by_sweep(outputs, damaged).items())
    return [(name, Counter(states.get(run, "missing") for run in runs)) for name, runs in merged]


def evaluations_of(outputs: Path, runs: set[str]) -> list[str]:
    """The ids of all evaluations that measured one of these runs, or used one to attack others."""
    found = []
    for folder in Store(outputs, "evaluations").folders():
        try:
            config = folder.read_config()
        except DamagedError:
            continue  # nobody knows whose evaluation it is
        if runs & {*(config.get("targets") or ()), config.get("source")}:
            found.append(folder.id)
    return found
