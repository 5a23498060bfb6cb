"""The store: one folder per job, written so that a crash at any moment leaves every file whole.

The index is what all jobs of a store say of themselves, in one file instead of two per job. It is derived
from the folders and never asked without them: a row counts only while the files it was read from have the
stamps that the row names, so that a missing, stale or damaged index only costs time.
"""

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lmsweep.errors import UserError
from lmsweep.files import DamagedError, locked, read_json, unwritable, write_json
from lmsweep.store.folder import JobFolder
from lmsweep.store.lease import JobBusyError, owner, slurm_job

KINDS = ("runs", "evaluations")  # each has a folder
_GRAVE = ".removed-"
_ID = re.compile(r"[0-9A-Za-z][\w-]*")  # no dots and no slashes, so that no id leads out of the store

Entry = tuple[dict[str, Any], dict[str, Any] | None]  # status and results, as `JobFolder.look` gives them
INDEX = ".index.json"
INDEX_VERSION = 2  # of its rows
# What lists and estimates need of results; the rest stays in the job's folder.
KEPT = ("id", "method", "seed", "metrics", "remarks", "seconds", "train_seconds", "cost_key", "machine")
# A file can change twice within one tick of the clock that stamps it, so what is this young is not kept.
SETTLED_NANOSECONDS = 2_000_000_000

# `queued`: pending, and a Slurm job is going to train it. `abandoned`: its process is gone without a word;
# the next sweep takes it over. `damaged`: a file is not what was written; the next sweep does the work again.
STATES = ("done", "running", "queued", "failed", "pending", "abandoned", "damaged")
Row = dict[str, Any]


def is_id(text: object) -> bool:
    """Whether a job can be called so."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


class Store:
    """All runs below one folder, or with another `kind` all evaluations."""

    def __init__(self, root: str | Path, kind: str = "runs") -> None:
        self.root = Path(root) / kind
        self.noun = kind.removesuffix("s").capitalize()

    def folder(self, job_id: str) -> JobFolder:
        """The folder of a job, whether it exists or not."""
        if not is_id(job_id):
            raise UserError(f"{job_id!r} is no id; `lmsweep status` lists the ids in {self.root}.")
        return JobFolder(self.root / job_id)

    def find(self, beginning: str) -> JobFolder:
        """The folder of the job whose id this is, or whose id alone begins so; several are an error."""
        prefix = self.folder(beginning).id  # which checks that it can be one
        found = {folder.id: folder for folder in self.folders() if folder.id.startswith(prefix)}
        if len(found) == 1 or prefix in found:
            return found.get(prefix) or next(iter(found.values()))
        noun = self.noun.lower()
        if not found:
            raise UserError(
                f"There is no {noun} {beginning} in {self.root}; `lmsweep status` lists the ids, and "
                "outputs=... names another store."
            )
        some = ", ".join(list(found)[:5])
        raise UserError(
            f"{beginning} is the beginning of {len(found)} {noun}s ({some}, ...); write more of its id."
        )

    def folders(self) -> list[JobFolder]:
        """The folder of every job there is, by id."""
        try:
            with os.scandir(self.root) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.folder(name) for name in names if is_id(name)]

    def entries(self, only: Iterable[str] | None = None) -> dict[str, Entry]:
        """Status and results of every job, by id; `only` these when given. Results of all are shortened."""
        if only is not None:
            return {name: self.folder(name).look() for name in sorted(only)}
        known = _read_index(self.root / INDEX)
        found: dict[str, Entry] = {}
        rows: dict[str, list[Any]] = {}
        settled = time.time_ns() - SETTLED_NANOSECONDS
        for folder in self.folders():
            stamps = [_stamp(f"{self.root}/{folder.id}/{name}") for name in ("status.json", "results.json")]
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
                write_json(self.root / INDEX, {"version": INDEX_VERSION, "rows": rows}, indent=None)
        return found

    def submit(
        self, job_id: str, config: Mapping[str, Any], about: Mapping[str, Any], *, force: bool = False
    ) -> None:
        """Freeze a job that is going to be run: the job is `pending` until a process takes its lease.

        A job that a live process has stays as it is; so does a finished job, except with `force`.
        """
        self._make_folder(job_id)
        with self._opened(job_id) as (folder, status):
            if (force or status.get("state") != "done") and not folder.is_running(status):
                _begin(folder, status, config, force, state="pending", about=dict(about), **slurm_job())

    def assign(self, job_id: str, job: str) -> None:
        """Record which Slurm job is going to run a job, unless the job has begun already."""
        with self._opened(job_id) as (folder, status):
            if status.get("state") == "pending":
                folder.write_status({**status, "slurm": job})

    def lose(self, job_id: str, seen: Mapping[str, Any], reason: str | None) -> bool:
        """Record that the process of a job is gone: it failed for the `reason`, or without one waits again.

        `seen` is the status that says so. False, and nothing happens, when the job has gone on since then.
        """
        with self._opened(job_id) as (folder, status):
            if any(status.get(key) != seen.get(key) for key in ("state", "token", "attempt", "slurm")):
                return False
            end = {"state": "failed", "reason": reason, "final": False} if reason else {"state": "pending"}
            folder.write_status({**status, **end, "ended": time.time()})
            if reason:
                folder.write_error(reason, f"See {folder.log} for what it printed.\n")
        return True

    def lease(
        self,
        job_id: str,
        config: Mapping[str, Any],
        about: Mapping[str, Any] | None = None,
        *,
        force: bool = False,
    ) -> JobFolder | None:
        """Take a job for this process; None when the job is done already, except with `force`.

        Raises JobBusyError while another live process has the job. The lease of a process that is gone is
        taken over; what is damaged is forgotten, and the work starts afresh.
        """
        self._make_folder(job_id)
        with self._opened(job_id) as (folder, status):
            if status.get("state") == "done" and not force:
                return None
            if folder.is_running(status):
                raise JobBusyError(
                    f"{self.noun} {job_id} is in the hands of process {status['pid']} on {status['host']}; "
                    "wait for it, or stop that process and call again."
                )
            lease = {"attempt": status.get("attempt", 0) + 1, "started": time.time(), **owner()}
            about = status.get("about", {}) if about is None else dict(about)
            _begin(folder, status, config, force, state="running", about=about, **lease)
            folder.token = lease["token"]
            folder.error.unlink(missing_ok=True)
            folder.clear()
        return folder

    def give_back(self, job_id: str) -> None:
        """Make a job `pending` again whose process is gone without having said so."""
        with self._opened(job_id) as (folder, status):
            if status.get("state") == "running" and not folder.is_running(status):
                folder.write_status({**status, "state": "pending", "ended": time.time()})

    def remove(self, job_id: str) -> bool:
        """Delete a job; False, and nothing happens, while a live process has the job."""
        with self._opened(job_id) as (folder, status):
            if folder.is_running(status):
                return False
            # Out of sight in one step, so that a kill in the middle leaves no half of a job.
            grave = self.root / f"{_GRAVE}{job_id}-{os.getpid()}"
            folder.path.rename(grave)
        if grave.is_symlink():  # what is behind a link is not the store's
            grave.unlink()
        else:
            shutil.rmtree(grave)
        return True

    def graves(self) -> list[Path]:
        """What `remove` left behind because its process was killed."""
        return sorted(self.root.glob(f"{_GRAVE}*"))

    @contextmanager
    def _opened(self, job_id: str) -> Iterator[tuple[JobFolder, dict[str, Any]]]:
        """The folder of a job and its status, which nobody else changes meanwhile."""
        folder = self.folder(job_id)
        with locked(self.root):
            yield folder, folder.read_status()

    def _make_folder(self, job_id: str) -> None:
        try:
            self.folder(job_id).path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(error, self.root.parent) or UserError(
                f"outputs={self.root.parent} cannot be written ({error.strerror}); "
                "name another folder with outputs=... or LMSWEEP_OUTPUTS."
            ) from None


def _begin(
    folder: JobFolder, status: Mapping[str, Any], config: Mapping[str, Any], force: bool, **state: Any
) -> None:
    """Freeze what a job is made from, and replace its status by one that says how it begins."""
    if force or status.get("state") == "damaged":
        folder.forget_outcome()
    folder.write_config(config)
    kept = {"attempt": status.get("attempt", 0), "created": status.get("created", time.time())}
    folder.write_status({**kept, **state})


def _read_index(path: Path) -> dict[str, list[Any]]:
    try:
        content = read_json(path)
    except (OSError, DamagedError):
        return {}
    rows = content.get("rows")
    return rows if content.get("version") == INDEX_VERSION and isinstance(rows, dict) else {}


def _stamp(path: str) -> list[int]:
    """What changes whenever a file does: its number, the time of its last change, and its size."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - of tens of thousands of files
    except OSError:
        return [0, 0, 0]
    return [seen.st_ino, seen.st_ctime_ns, seen.st_size]


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
            if "seconds" in results:  # a rung has none
                row["seconds"] = results["seconds"]
            row |= results.get("metrics", {})
            row |= {"remarks": "; ".join(results["remarks"])} if results.get("remarks") else {}
        elif state in ("running", "abandoned"):
            row |= {"host": status["host"], "pid": status["pid"], "seconds": time.time() - status["started"]}
        elif "reason" in status:
            row["reason"] = status["reason"]
    except (OSError, KeyError, TypeError) as error:  # of a store that another version wrote
        return {"run": folder.id, "state": "damaged", "reason": f"{type(error).__name__}: {error}"}
    return row


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
