"""Worker processes: a fresh one per task, forked from a server that has imported what tasks need."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle

# A worker that does not give its job back within this time is killed; its last checkpoint stays.
GRACE_SECONDS = 30.0

# A task fails when its process was killed this often, by a kernel that is short of memory, say.
LIVES = 3

_context = multiprocessing.get_context("forkserver")


@dataclass
class Ended:
    """A task whose process is gone: what it returned or raised, or how it died."""

    key: str
    value: Any = None
    error: BaseException | None = None
    died: str | None = None  # "signal 9 (SIGKILL)", when its process neither returned nor raised


@dataclass
class _Worker:
    key: str
    process: ForkServerProcess
    connection: Connection
    slot: int


class Pool:
    """At most one task per slot at a time; a slot is the environment that its tasks get (say, one GPU)."""

    def __init__(self, slots: Sequence[Mapping[str, str]], preload: Sequence[str] = ()) -> None:
        # One thread per process unless a task asks for more: OpenMP spins when cores are overbooked.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        _context.set_forkserver_preload(list(preload))  # takes effect when the server starts
        self.slots = list(slots)
        self.workers: dict[str, _Worker] = {}

    @property
    def free(self) -> bool:
        """Whether another task can start now."""
        return len(self.workers) < len(self.slots)

    def warm_up(self) -> None:
        """Let the server begin its imports, which take seconds, while the caller gets its tasks ready."""
        with _shielded():
            ensure_running()

    def start(self, key: str, task: Callable[[], Any], log: Path | None = None) -> None:
        """Begin a task in a new process; what it prints goes to the end of `log`."""
        busy = {worker.slot for worker in self.workers.values()}
        slot = next(index for index in range(len(self.slots)) if index not in busy)
        ours, theirs = _context.Pipe(duplex=False)
        arguments = (theirs, dict(self.slots[slot]), log, cloudpickle.dumps(task))
        process = _fork(arguments, key)
        theirs.close()
        self.workers[key] = _Worker(key, process, ours, slot)

    def wait(self, timeout: float) -> list[Ended]:
        """Tasks that ended, at the latest after `timeout` seconds."""
        watched: list[Any] = [worker.process.sentinel for worker in self.workers.values()]
        watched += [worker.connection for worker in self.workers.values()]
        wait(watched, timeout)
        gone = [w for w in self.workers.values() if w.connection.poll() or w.process.exitcode is not None]
        for worker in gone:
            del self.workers[worker.key]
        return [_ended(worker) for worker in gone]

    def stop(self, grace: float = GRACE_SECONDS) -> list[str]:
        """End all tasks, gently first; return the keys of those that were running."""
        stopped = list(self.workers)
        for worker in self.workers.values():
            worker.process.terminate()
        deadline = time.monotonic() + grace
        for worker in self.workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
            worker.connection.close()
        self.workers.clear()
        return stopped


def _fork(arguments: tuple[Any, ...], name: str) -> ForkServerProcess:
    """Start a worker; a few tries, because a server that was just killed takes a moment to be replaced."""
    for pause in (0.1, 0.5, 2.0, None):
        process = _context.Process(target=_work, args=arguments, name=name)
        try:
            with _shielded():
                process.start()
            break
        except (EOFError, OSError):
            if pause is None:
                raise
            time.sleep(pause)
    return process


@contextmanager
def _shielded() -> Iterator[None]:
    """Keep new processes from SIGUSR2, and multiprocessing from running the user's script again in them.

    Slurm signals every process of a job before its time is up, and only the parent is to act on that. A
    blocked signal reaches this process later, and stays blocked in its children. Tasks are pickled by value,
    also functions of the script, so that workers need nothing of the script.
    """
    script = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: script[name] for name in ("__file__", "__spec__") if name in script}
    script.pop("__file__", None)
    script["__spec__"] = None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        script.update(before)


def _ended(worker: _Worker) -> Ended:
    with worker.connection as connection:
        try:
            returned, value = pickle.loads(connection.recv_bytes()) if connection.poll() else (None, None)  # noqa: S301 - from our own child
        except EOFError:
            returned, value = None, None
    worker.process.join()
    if returned is None:
        return Ended(worker.key, died=_death(worker.process.exitcode or 0))
    return Ended(worker.key, value=value) if returned else Ended(worker.key, error=value)


def _death(exitcode: int) -> str:
    if exitcode < 0:
        return f"signal {-exitcode} ({signal.Signals(-exitcode).name})"
    return f"exit status {exitcode}"


def _work(connection: Connection, environment: Mapping[str, str], log: Path | None, task: bytes) -> None:
    """What a worker process does: its task, nothing else, and never longer than its parent lives."""
    os.environ.update(environment)
    # Ctrl-C reaches the whole process group of a terminal; the parent decides what it means for the jobs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signal.signal(signal.SIGTERM, _interrupt)  # inside the try, because SIGTERM may come at once
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if log is not None:
            _redirect(log)
        answer: tuple[bool, Any] = True, pickle.loads(task)()  # noqa: S301 - from our own parent
    except BaseException as error:
        answer = False, error
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        message = cloudpickle.dumps(answer)
    except Exception as error:  # an error or a value that cannot be pickled
        message = cloudpickle.dumps((False, RuntimeError(f"{answer[1]!r} cannot be sent: {error}")))
    try:
        connection.send_bytes(message)
    except BrokenPipeError:
        return  # the parent is gone; the store has all that counts


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _redirect(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    # A store can be somebody else's: what a link leads to is not written to.
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())
    os.close(file)
    faulthandler.enable()


_stopped_by: int = signal.SIGINT


def stop_on_sigterm() -> None:
    """Let SIGTERM, from a shell or a scheduler, stop this process as Ctrl-C does."""

    def interrupt(signum: int, _frame: FrameType | None) -> None:
        global _stopped_by
        _stopped_by = signum
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def interrupted_by() -> int:
    """The signal behind the last KeyboardInterrupt."""
    return _stopped_by


def call_each(
    slots: Sequence[Mapping[str, str]],
    tasks: Mapping[str, Callable[[], Any]],
    *,
    log: Path | None = None,
    preload: Sequence[str] = (),
    on_end: Callable[[], object] = lambda: None,
) -> dict[str, Ended]:
    """Call every task in a process of its own and say how each ended; one that fails stops no other.

    A task whose process died gets another one, `LIVES` in all. `on_end` is called when a task has ended.
    """
    pool, waiting, deaths = Pool(slots, preload), list(tasks), Counter[str]()
    ends: dict[str, Ended] = {}
    try:
        while waiting or pool.workers:
            while waiting and pool.free:
                key = waiting.pop(0)
                pool.start(key, tasks[key], log)
            for ended in pool.wait(1.0):
                deaths[ended.key] += bool(ended.died)
                if ended.died and deaths[ended.key] < LIVES:
                    waiting.append(ended.key)
                else:
                    ends[ended.key] = ended
                    on_end()
    finally:
        pool.stop()
    return {key: ends[key] for key in tasks}


def value_of(ended: Ended) -> Any:
    """What a task returned; raises what it raised, or RuntimeError when its process died."""
    if ended.error or ended.died:
        raise ended.error or RuntimeError(f"the process of {ended.key} died {LIVES} times by {ended.died}")
    return ended.value
