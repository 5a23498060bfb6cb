"""The index: what all jobs of a store say of themselves, in one file instead of two per job.

The index is derived from the folders and never asked without them: a row counts only while the files it was
read from have the stamps that the row names, so that a missing, stale or damaged index only costs time.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.files import DamagedError, read_json, write_json

if TYPE_CHECKING:
    from lmsweep.store.folder import JobFolder

Entry = tuple[dict[str, Any], dict[str, Any] | None]  # status and results, as `JobFolder.look` gives them

NAME = ".index.json"
VERSION = 2  # of the rows
# What lists and estimates need of results; the rest stays in the job's folder.
KEPT = ("id", "method", "seed", "metrics", "remarks", "seconds", "train_seconds", "cost_key", "machine")
# A file can change twice within one tick of the clock that stamps it, so what is this young is not kept.
SETTLED_NANOSECONDS = 2_000_000_000


def entries(root: Path, folders: Iterable["JobFolder"]) -> dict[str, Entry]:
    """Status and results (the part that is in `KEPT`) of all these jobs below `root`."""
    known = _read(root / NAME)
    found: dict[str, Entry] = {}
    rows: dict[str, list[Any]] = {}
    settled = time.time_ns() - SETTLED_NANOSECONDS
    for folder in folders:
        stamps = [_stamp(f"{root}/{folder.id}/{name}") for name in ("status.json", "results.json")]
        row = known.get(folder.id)
        if row is None or row[0] != stamps:
            status, results = folder.look()
            results = results and {key: results[key] for key in KEPT if key in results}
            row = [stamps, status, results]
        found[folder.id] = row[1], row[2]
        if all(stamp[1] < settled for stamp in stamps):
            rows[folder.id] = row
    if rows.keys() != known.keys() or any(row is not known[name] for name, row in rows.items()):
        with suppress(OSError):  # of a store that may only be read
            write_json(root / NAME, {"version": VERSION, "rows": rows}, indent=None)
    return found


def _read(path: Path) -> dict[str, list[Any]]:
    try:
        content = read_json(path)
    except (OSError, DamagedError):
        return {}
    rows = content.get("rows")
    return rows if content.get("version") == VERSION and isinstance(rows, dict) else {}


def _stamp(path: str) -> list[int]:
    """What changes whenever a file does: its number, the time of its last change, and its size."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - of tens of thousands of files
    except OSError:
        return [0, 0, 0]
    return [seen.st_ino, seen.st_ctime_ns, seen.st_size]
