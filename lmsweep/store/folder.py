"""The files of one job, written so that a crash at any moment leaves every file whole."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lmsweep.errors import UserError
from lmsweep.files import locked, write_atomically
from lmsweep.store.lease import STALE_AFTER_SECONDS, LeaseLostError, is_alive

# libyaml writes a configuration ten times faster than Python does, which counts for thousands of runs.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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
        self.attempt: int | None = None  # which lease of the job is ours

    def read_status(self) -> dict[str, Any]:
        """The status, or {} when the job was never asked for."""
        try:
            status: dict[str, Any] = json.loads(self.status.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.status} is damaged ({error}); delete {self.path} to start again."
            ) from None
        return status

    def read_results(self) -> dict[str, Any] | None:
        """The results of a finished job, else None."""
        if self.read_status().get("state") != "done":
            return None
        results: dict[str, Any] = json.loads(self.results.read_bytes())
        return results

    def is_running(self, status: Mapping[str, Any] | None = None) -> bool:
        """Whether a live process has the job."""
        status = self.read_status() if status is None else status
        return status.get("state") == "running" and is_alive(status, self.status)

    def beat(self) -> None:
        """Tell other hosts that this job is alive: the heartbeat is the status file's time of change."""
        self.check_lease()
        os.utime(self.status)

    def check_lease(self) -> dict[str, Any]:
        """Return the status; LeaseLostError unless this process still has the job."""
        status = self.read_status()
        if (status.get("state"), status.get("attempt")) != ("running", self.attempt):
            raise LeaseLostError(
                f"{self.path} was taken over by process {status.get('pid')} on {status.get('host')} "
                f"after {STALE_AFTER_SECONDS:.0f} s of silence; this process leaves it alone."
            )
        return status

    def finish(self, results: Mapping[str, Any]) -> None:
        """Record the results; only then does the job count as done."""
        with self._ending("done"):
            write_atomically(self.results, json.dumps(results, indent=2) + "\n")

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
        with locked(self.path.parent):
            status = self.check_lease()
            yield
            self.write_status({**status, "state": state, "ended": time.time(), **more})

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the status; the caller holds the store's lock."""
        write_atomically(self.status, json.dumps(status, indent=2) + "\n")

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
