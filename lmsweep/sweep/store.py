"""The store: one folder per run, written so that a crash at any moment leaves every file whole."""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from lmsweep.errors import UserError

# A claim from another host is given up when its heartbeat is this old; on the same host the process is asked.
STALE_AFTER_SECONDS = 600.0


class RunBusyError(UserError):
    """Another live process has this run."""


class ClaimLostError(UserError):
    """This process was silent for so long that another one took its run over."""


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replace `path` by `data` in one step: readers see the old file or the new one, never a part."""
    data = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
        self.attempt: int | None = None  # which claim on the run is ours

    def read_status(self) -> dict[str, Any]:
        """The status, or {} when the run was never started."""
        try:
            status: dict[str, Any] = json.loads(self.status.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except json.JSONDecodeError as error:
            raise UserError(
                f"{self.status} is damaged ({error}); delete {self.path} to start again."
            ) from None
        return status

    def read_results(self) -> dict[str, Any] | None:
        """The results of a finished run, else None."""
        if self.read_status().get("state") != "done":
            return None
        results: dict[str, Any] = json.loads(self.results.read_text())
        return results

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

    def fail(self, reason: str, traceback: str) -> None:
        """Record why the run stopped."""
        with self._ending("failed", reason=reason):
            write_atomically(self.error, f"{reason}\n\n{traceback}")

    def release(self) -> None:
        """Give the run back, to be continued from its last checkpoint."""
        with self._ending("pending"):
            pass

    @contextmanager
    def _ending(self, state: str, **more: str) -> Iterator[None]:
        with _locked(self.path.parent):
            status = self.check_claim()
            yield
            ended = {**status, "state": state, "ended": time.time(), **more}
            write_atomically(self.status, json.dumps(ended, indent=2) + "\n")


class Store:
    """All runs below one folder, or with another `kind` whatever else is kept in the same way."""

    def __init__(self, root: str | Path, kind: str = "runs") -> None:
        self.root = Path(root) / kind
        self.noun = kind.removesuffix("s").capitalize()

    def run(self, run_id: str) -> RunFolder:
        """The folder of a run, whether it exists or not."""
        return RunFolder(self.root / run_id)

    def claim(self, run_id: str, config: Mapping[str, Any]) -> RunFolder | None:
        """Take a run for this process; None when it is already done.

        Raises RunBusyError while another live process has it. A claim whose process is gone is taken over.
        """
        folder = self.run(run_id)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"outputs={self.root.parent} cannot be written ({error.strerror}); "
                "name another folder with outputs=... or LMSWEEP_OUTPUTS."
            ) from None
        with _locked(self.root):
            status = folder.read_status()
            if status.get("state") == "done":
                return None
            if status.get("state") == "running" and _is_alive(status, folder.status):
                raise RunBusyError(
                    f"{self.noun} {run_id} is in the hands of process {status['pid']} on {status['host']}; "
                    "wait for it, or stop that process and call again."
                )
            if not folder.config.exists():
                write_atomically(folder.config, yaml.safe_dump(dict(config), sort_keys=False))
            status = {
                "state": "running",
                "attempt": status.get("attempt", 0) + 1,
                "created": status.get("created", time.time()),
                "started": time.time(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "pid_started": _process_start(os.getpid()),
            }
            write_atomically(folder.status, json.dumps(status, indent=2) + "\n")
            folder.attempt = status["attempt"]
            folder.error.unlink(missing_ok=True)
            for leftover in folder.path.glob(".*.tmp"):  # of a process that was killed while it wrote
                leftover.unlink()
        return folder


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    # Held for milliseconds while a claim is decided or given up; the kernel drops it when the process dies.
    with (root / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def beating(folders: Sequence[RunFolder], every_seconds: float = 20.0) -> Iterator[None]:
    """Beat for all `folders` from a thread, so that no long step, validation or download looks like death."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(every_seconds):
            for folder in folders:
                # A folder that is lost or cannot be reached now must not silence the others, nor this one's
                # next beat; whether the claim still holds is asked again when the work ends.
                with suppress(OSError, ClaimLostError):
                    folder.beat()

    thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _is_alive(status: Mapping[str, Any], heartbeat: Path) -> bool:
    if status["host"] == socket.gethostname():
        started = _process_start(status["pid"])
        return started is not None and abs(started - status["pid_started"]) < 2  # clocks get adjusted
    return time.time() - heartbeat.stat().st_mtime < STALE_AFTER_SECONDS


def _process_start(pid: int) -> float | None:
    """When a process started; None when it is gone. The kernel gives process ids out again, so both count."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
