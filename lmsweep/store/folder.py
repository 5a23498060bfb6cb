"""The files of one job, written so that a crash at any moment leaves every file whole."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from lmsweep.files import DamagedError, digest, locked, read_json, replacing, write_atomically, write_json
from lmsweep.store.lease import STALE_AFTER_SECONDS, LeaseLostError, is_alive

# libyaml is ten times faster than Python, which counts for thousands of runs.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
AGAIN = "the same command does the work again"
# The states that are written, and what a status must have in each.
_STATES: dict[str, dict[str, Any]] = {
    "pending": {},
    "running": {"host": str, "pid": int, "pid_started": int | float, "started": int | float},
    "done": {},
    "failed": {"reason": str},
}


class _File:
    """A file's path, made when somebody asks for it: of thousands of jobs most are asked for one or two."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "JobFolder", _: type) -> Path:
        return folder.path / self.name


class JobFolder:
    """The files of one job."""

    config = _File("config.yaml")
    status = _File("status.json")
    results = _File("results.json")
    metrics = _File("metrics.jsonl")
    checkpoint = _File("checkpoint.ckpt")
    last = _File("last.ckpt")
    error = _File("error.txt")
    log = _File("log.txt")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.token: str | None = None  # which lease of the job is ours

    def look(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The status, {} when the job was never asked for, and the results of a finished job, else None.

        A file that is not what was written makes the state `damaged`, with a `reason` that says what to do.
        """
        try:
            status = self._checked_status()
        except (FileNotFoundError, NotADirectoryError):
            return {}, None
        except DamagedError as error:
            return {"state": "damaged", "reason": str(error)}, None
        if status["state"] != "done":
            return status, None
        try:
            results = read_json(self.results, AGAIN)
            if results.get("id", self.id) != self.id:
                raise DamagedError(self.results, f"it is of {results['id']}", AGAIN)
        except FileNotFoundError:
            return {**status, "state": "damaged", "reason": f"{self.results} is missing; {AGAIN}."}, None
        except DamagedError as error:
            return {**status, "state": "damaged", "reason": str(error)}, None
        return status, results

    def _checked_status(self) -> dict[str, Any]:
        status = read_json(self.status, AGAIN)
        state = status.get("state")
        if state not in _STATES:
            raise DamagedError(self.status, f"state is {state!r}", AGAIN)
        for key, kind in {"attempt": int, "about": dict, **_STATES[state]}.items():
            if not isinstance(status.get(key), kind):
                raise DamagedError(self.status, f"{key} is {status.get(key)!r}", AGAIN)
        return status

    def read_status(self) -> dict[str, Any]:
        """The status; {} when the job was never asked for."""
        return self.look()[0]

    def read_results(self) -> dict[str, Any] | None:
        """The results of a finished job, else None."""
        return self.look()[1]

    def read_file(self, path: Path) -> bytes:
        """A file of the job; DamagedError when it was changed since the job was done."""
        data = path.read_bytes()
        if self.read_status().get("files", {}).get(path.name, digest(data)) != digest(data):
            remedy = f"delete {self.path}, and {AGAIN}"
            raise DamagedError(path, "it was changed after the job was done", remedy)
        return data

    def read_config(self) -> dict[str, Any]:
        """What the job is made from; DamagedError where that cannot be read."""
        try:
            content = yaml.load(self.read_file(self.config), Loader=_Loader)  # noqa: S506 - a safe loader, in C
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise DamagedError(self.config, error, f"delete {self.path}, and {AGAIN}") from None
        if not isinstance(content, dict):
            raise DamagedError(self.config, "it must be a mapping", f"delete {self.path}, and {AGAIN}")
        return content

    def is_running(self, status: Mapping[str, Any] | None = None) -> bool:
        """Whether a live process has the job."""
        status = self.read_status() if status is None else status
        return status.get("state") == "running" and is_alive(status, self.status)

    def beat(self) -> None:
        """Tell others that this job is alive: the heartbeat is the status file's time of change."""
        with self.holding():
            os.utime(self.status)

    @contextmanager
    def holding(self) -> Iterator[dict[str, Any]]:
        """Hold the store's lock with the lease in hand: all that an owner writes, it puts in place inside."""
        with locked(self.path.parent):
            yield self.check_lease()

    def replacing(self, name: str) -> AbstractContextManager[Path]:
        """Give a temporary file to write, which then takes the place of the file `name` of this job."""
        return replacing(self.path / name, self.holding)

    def check_lease(self) -> dict[str, Any]:
        """Return the status; LeaseLostError unless this process still has the job."""
        status = self.read_status()
        if self.token is None or (status.get("state"), status.get("token")) != ("running", self.token):
            raise LeaseLostError(
                f"{self.path} was taken over by process {status.get('pid')} on {status.get('host')} "
                f"after {STALE_AFTER_SECONDS:.0f} s of silence, or deleted; this process leaves it alone."
            )
        return status

    def finish(self, results: Mapping[str, Any]) -> None:
        """Record the results; only then does the job count as done."""
        kept = [path for path in self.path.iterdir() if path.suffix in (".yaml", ".jsonl", ".npz")]
        with self._ending("done", files={path.name: digest(path.read_bytes()) for path in kept}):
            write_json(self.results, results)

    def fail(self, reason: str, traceback: str, *, final: bool = False) -> None:
        """Record why the job stopped; `final` when running the job again would only repeat that."""
        with self._ending("failed", reason=reason, final=final):
            self.write_error(reason, traceback)

    def release(self) -> None:
        """Give the job back, to be continued from its last checkpoint."""
        with self._ending("pending"):
            pass

    @contextmanager
    def _ending(self, state: str, **more: Any) -> Iterator[None]:
        with self.holding() as status:
            yield
            self.write_status({**status, "state": state, "ended": time.time(), **more})

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the status; the caller holds the store's lock."""
        write_json(self.status, status)

    def write_error(self, reason: str, details: str) -> None:
        """Write down at length why the job failed."""
        write_atomically(self.error, f"{reason}\n\n{details}")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Freeze what the job is made from; the caller holds the store's lock."""
        write_atomically(self.config, yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False))

    def forget_outcome(self) -> None:
        """Delete what the work left, so that it starts afresh; the caller holds the store's lock."""
        for file in (self.results, self.checkpoint, self.last, self.metrics, self.error, self.log):
            file.unlink(missing_ok=True)
        self.clear()

    def leftovers(self) -> Iterator[Path]:
        """What a process left that was killed while it wrote, and checkpoints that were set aside."""
        yield from self.path.glob(".*.tmp")
        yield from self.path.glob("*.damaged")

    def clear(self) -> None:
        """Delete what is left over; the caller holds the store's lock."""
        for path in self.leftovers():
            path.unlink(missing_ok=True)
