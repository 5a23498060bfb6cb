"""The store: one folder per run, written so that a crash at any moment leaves every file whole."""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmsweep.errors import UserError
from lmsweep.files import locked, unwritable
from lmsweep.store.folder import RunFolder
from lmsweep.store.lease import RunBusyError, owner, slurm_job

_GRAVE = ".removed-"


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

    def submit(
        self, run_id: str, config: Mapping[str, Any], about: Mapping[str, Any], *, force: bool = False
    ) -> None:
        """Freeze a run that is going to be trained: it is `pending` until a process claims it.

        A run that a live process has is left as it is, and so is one that is done, except with `force`.
        """
        folder = self._folder(run_id)
        with locked(self.root):
            status = folder.read_status()
            if (status.get("state") == "done" and not force) or folder.is_running(status):
                return
            folder.write_config(config)
            pending = {
                "state": "pending",
                "attempt": status.get("attempt", 0),
                "created": status.get("created", time.time()),
                **slurm_job(),
                "about": dict(about),
            }
            folder.write_status(pending)
            if force:
                folder.forget_outcome()

    def assign(self, run_id: str, job: str) -> None:
        """Record the Slurm job that is going to train a run, unless it has begun or another one has it."""
        folder = self.run(run_id)
        with locked(self.root):
            status = folder.read_status()
            if status.get("state") == "pending":
                folder.write_status({**status, "slurm": job})

    def lose(self, run_id: str, seen: Mapping[str, Any], reason: str | None) -> bool:
        """End what `seen` says of a run whose Slurm job is over (failed), or queued again (no `reason`).

        False, and nothing happens, when the run has gone on since it was seen.
        """
        folder = self.run(run_id)
        with locked(self.root):
            status = folder.read_status()
            if any(status.get(key) != seen.get(key) for key in ("state", "attempt", "slurm")):
                return False
            end = {"state": "failed", "reason": reason, "final": False} if reason else {"state": "pending"}
            folder.write_status({**status, **end, "ended": time.time()})
            if reason:
                folder.write_error(reason, f"See {folder.log} for what it printed.\n")
        return True

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
            grave = self.root / f"{_GRAVE}{run_id}-{os.getpid()}"
            folder.path.rename(grave)
        shutil.rmtree(grave)
        return True

    def graves(self) -> list[Path]:
        """What `remove` left behind because its process was killed."""
        return sorted(self.root.glob(f"{_GRAVE}*"))

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
