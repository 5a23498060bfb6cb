"""The store: one folder per run, written so that a crash at any moment leaves every file whole."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lmsweep.errors import UserError
from lmsweep.files import locked, unwritable, write_atomically
from lmsweep.sweep.claims import STALE_AFTER_SECONDS, ClaimLostError, RunBusyError, is_alive, owner


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.config = path / "config.yaml"
        self.status = path / "status.json"
        self.results = path / "results.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint.ckpt"
        self.error = path / "error.txt"
        self.log = path / "log.txt"
        self.attempt: int | None = None  # which claim on the run is ours

    def read_status(self) -> dict[str, Any]:
        """The status, or {} when the run was never asked for."""
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
        """The results of a finished run, else None."""
        if self.read_status().get("state") != "done":
            return None
        results: dict[str, Any] = json.loads(self.results.read_bytes())
        return results

    def is_running(self, status: Mapping[str, Any] | None = None) -> bool:
        """Whether a live process has the run."""
        status = self.read_status() if status is None else status
        return status.get("state") == "running" and is_alive(status, self.status)

    def beat(self) -> None:
        """Tell other hosts that this run is alive: the heartbeat is the status file's time of change."""
        self.check_claim()
        os.utime(self.status)

    def check_claim(self) -> dict[str, Any]:
        """Return the status; ClaimLostError unless this process still has the run."""
        status = self.read_status()
        if (status.get("state"), status.get("attempt")) != ("running", self.attempt):
            raise ClaimLostError(
                f"{self.path} was taken over by process {status.get('pid')} on {status.get('host')} "
                f"after {STALE_AFTER_SECONDS:.0f} s of silence; this process leaves it alone."
            )
        return status

    def finish(self, results: Mapping[str, Any]) -> None:
        """Record the results; only then does the run count as done."""
        with self._ending("done"):
            write_atomically(self.results, json.dumps(results, indent=2) + "\n")

    def fail(self, reason: str, traceback: str, *, final: bool = False) -> None:
        """Record why the run stopped; `final` when training it again would only repeat that."""
        with self._ending("failed", reason=reason, final=final):
            write_atomically(self.error, f"{reason}\n\n{traceback}")

    def release(self) -> None:
        """Give the run back, to be continued from its last checkpoint."""
        with self._ending("pending"):
            pass

    @contextmanager
    def _ending(self, state: str, **more: Any) -> Iterator[None]:
        with locked(self.path.parent):
            status = self.check_claim()
            yield
            self.write_status({**status, "state": state, "ended": time.time(), **more})

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the status; the caller holds the store's lock."""
        write_atomically(self.status, json.dumps(status, indent=2) + "\n")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Freeze what the run is made from; the caller holds the store's lock."""
        write_atomically(self.config, yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False))

    def forget_outcome(self) -> None:
        """Delete what training left, so that it starts afresh; the caller holds the store's lock."""
        for file in (self.results, self.checkpoint, self.metrics, self.error, self.log):
            file.unlink(missing_ok=True)


class Store:
    """All runs below one folder, or with another `kind` whatever else is kept in the same way."""

    def __init__(self, root: str | Path, kind: str = "runs") -> None:
        self.root = Path(root) / kind
        self.noun = kind.removesuffix("s").capitalize()

    def run(self, run_id: str) -> RunFolder:
        """The folder of a run, whether it exists or not."""
        return RunFolder(self.root / run_id)

    def folders(self) -> list[RunFolder]:
        """Every run there is, by id."""
        try:
            with os.scandir(self.root) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.run(name) for name in names if not name.startswith(".")]

    def submit(self, run_id: str, config: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Freeze a run that is going to be trained: it is `pending` until a process claims it.

        A run that a live process has, or that is done, is left as it is.
        """
        folder = self._folder(run_id)
        with locked(self.root):
            status = folder.read_status()
            if status.get("state") == "done" or folder.is_running(status):
                return
            folder.write_config(config)
            pending = {
                "state": "pending",
                "attempt": status.get("attempt", 0),
                "created": status.get("created", time.time()),
                "about": dict(about),
            }
            folder.write_status(pending)

    def claim(
        self,
        run_id: str,
        config: Mapping[str, Any],
        about: Mapping[str, Any] | None = None,
        *,
        force: bool = False,
    ) -> RunFolder | None:
        """Take a run for this process; None when it is already done and not to be done again by `force`.

        Raises RunBusyError while another live process has it. A claim whose process is gone is taken over.
        """
        folder = self._folder(run_id)
        with locked(self.root):
            status = folder.read_status()
            if status.get("state") == "done" and not force:
                return None
            if folder.is_running(status):
                raise RunBusyError(
                    f"{self.noun} {run_id} is in the hands of process {status['pid']} on {status['host']}; "
                    "wait for it, or stop that process and call again."
                )
            folder.write_config(config)
            folder.attempt = status.get("attempt", 0) + 1
            now = time.time()
            claim = {
                "state": "running",
                "attempt": folder.attempt,
                "created": status.get("created", now),
                "started": now,
                **owner(),
                "about": dict(about) if about is not None else status.get("about", {}),
            }
            folder.write_status(claim)
            folder.error.unlink(missing_ok=True)
            if force:
                folder.forget_outcome()
            for leftover in folder.path.glob(".*.tmp"):  # of a process that was killed while it wrote
                leftover.unlink()
        return folder

    def give_back(self, run_id: str) -> None:
        """Make a run `pending` again whose process is gone without having said so."""
        folder = self.run(run_id)
        with locked(self.root):
            status = folder.read_status()
            if status.get("state") == "running" and not folder.is_running(status):
                folder.write_status({**status, "state": "pending", "ended": time.time()})

    def remove(self, run_id: str) -> bool:
        """Delete a run; False, and nothing happens, while a live process has it."""
        folder = self.run(run_id)
        with locked(self.root):
            if folder.is_running():
                return False
            # Out of sight in one step, so that a kill in the middle leaves no half of a run.
            grave = self.root / f".removed-{run_id}-{os.getpid()}"
            folder.path.rename(grave)
        shutil.rmtree(grave)
        return True

    def _folder(self, run_id: str) -> RunFolder:
        folder = self.run(run_id)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(error, self.root.parent) or UserError(
                f"outputs={self.root.parent} cannot be written ({error.strerror}); "
                "name another folder with outputs=... or LMSWEEP_OUTPUTS."
            ) from None
        return folder


# libyaml writes a configuration ten times faster than Python does, which counts for thousands of runs.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
