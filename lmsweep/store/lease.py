"""Leases: which process has a job, and whether that process is still alive."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from lmsweep.errors import UserError

# A lease lapses when its heartbeat is this old: the owner is gone, out of reach, or was stopped.
STALE_AFTER_SECONDS = 600.0
BUSY_SECONDS = 0.5  # between two looks at a job that another process has

T = TypeVar("T")

# Where the processes of a job that `hydra/launcher=slurm` submitted find its id, such as 12_3 in an array.
SLURM_JOB = "LMSWEEP_SLURM_JOB"


class JobBusyError(UserError):
    """Another live process has this job."""


def when_free(work: Callable[[], T]) -> T:
    """Do the work; while another live process has the job, wait until that process has ended."""
    while True:
        try:
            return work()
        except JobBusyError:
            time.sleep(BUSY_SECONDS)


class LeaseLostError(UserError):
    """This process was silent for so long that another one took its job over, or its job was deleted."""


def owner() -> dict[str, Any]:
    """This process, as a lease names it, and the name of the lease itself."""
    pid = os.getpid()
    return {
        "token": secrets.token_hex(8),
        "host": socket.gethostname(),
        "place": place(),
        "pid": pid,
        "pid_started": _process_start(pid),
        **slurm_job(),
    }


def place() -> str:
    """Where a process id means a process: this boot of this machine, and in it this pid namespace.

    Two containers may have the same host name, and do not see each other's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux, which alone has such namespaces
        return f"{socket.gethostname()}/{psutil.boot_time():.0f}"


def slurm_job() -> dict[str, Any]:
    """The Slurm job that this process is part of, and how often it was requeued; {} outside of one."""
    job = os.environ.get(SLURM_JOB)
    return {"slurm": job, "restart": int(os.environ.get("SLURM_RESTART_COUNT", "0"))} if job else {}


def is_alive(status: Mapping[str, Any], heartbeat: Path) -> bool:
    """Whether the process that `status` names still works; `heartbeat` is the file it touches."""
    if status.get("place") == place():
        started = _process_start(status["pid"])
        if started is None or abs(started - status["pid_started"]) > 2:  # clocks get adjusted
            return False
    here = slurm_job()
    if here and here["slurm"] == status.get("slurm") and here["restart"] != status.get("restart"):
        return False  # Slurm started this job again, so what it was before is gone, wherever that was
    silent = time.time() - heartbeat.stat().st_mtime
    if silent < 0:  # by a clock that is ahead of ours: from now on the heartbeat ages by our clock
        with suppress(OSError):
            os.utime(heartbeat)
    return silent < STALE_AFTER_SECONDS


@contextmanager
def beating(beat: Callable[[], None], every_seconds: float = 20.0) -> Iterator[None]:
    """Call `beat` from a thread, so that no long step, validation or download looks like death."""
    stop = threading.Event()

    def beat_on() -> None:
        while not stop.wait(every_seconds):
            # A folder that cannot be reached now may be there for the next beat; whether the lease still
            # holds is asked again when the work ends.
            with suppress(OSError, LeaseLostError):
                beat()

    thread = threading.Thread(target=beat_on, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _process_start(pid: int) -> float | None:
    """When a process started; None when it is gone. The kernel gives process ids out again, so both count."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
