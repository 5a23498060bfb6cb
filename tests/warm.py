"""Commands in processes that are forked from a server which has their imports: a second instead of five.

Workers that such a command starts come from the same server, not from one of their own. Tests of the start
itself, of imports and of signals start Python afresh.
"""

import multiprocessing
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

from lmsweep import processes

HANGS_AFTER_SECONDS = 1800.0
# What most commands import; last the modules of workers, because the collector skips what is there by then.
PRELOADED = (
    *("lmsweep.commands.run", "lmsweep.commands.reproduce", "lmsweep.commands.figures"),
    *("lmsweep.commands.evaluations", "lmsweep.commands.store", "lmsweep.training.preload"),
)
_context = multiprocessing.get_context("forkserver")


class Started:
    """A command under way, with what tests use of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.args = ["python", "-m", *words]
        self._files = tempfile.TemporaryDirectory()
        self._out, self._err = (Path(self._files.name, name) for name in ("out", "err"))
        module, *arguments = words
        _context.set_forkserver_preload(list(PRELOADED))
        self._process = _context.Process(
            target=_become, args=(module, arguments, environment, folder, self._out, self._err)
        )
        self._process.start()
        self.kill = self._process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def communicate(self, timeout: float = HANGS_AFTER_SECONDS) -> tuple[str, str]:
        """What the command said, when it has ended."""
        self._process.join(timeout)
        if self.returncode is None:
            self.kill()
            self._process.join()
            raise TimeoutError(f"{shlex.join(self.args)} did not end within {timeout:.0f} s")
        with self._files:
            return tuple(file.read_text() if file.exists() else "" for file in (self._out, self._err))


def start(module: str, *arguments: str, **environment: str) -> Started:
    """Begin `python -m MODULE ARGUMENTS`, with these variables beside the present ones."""
    return Started([module, *arguments], {**os.environ, **environment}, Path.cwd())


def call(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Do that, and wait for its end."""
    return completed(start(module, *arguments, **environment))


def completed(started: Started | subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """A command that was started, when it has ended."""
    out, err = started.communicate(timeout=HANGS_AFTER_SECONDS)
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)


def _become(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, out: Path, err: Path
) -> None:
    _take_over(environment, out, err)
    os.chdir(folder)
    _fork_workers_from_this_server(out, err)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _take_over(environment: Mapping[str, str], out: Path, err: Path) -> None:
    """Have these variables and no others, and write to the ends of these files."""
    os.environ.clear()
    os.environ.update(environment)
    for path, descriptor in ((out, 1), (err, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)


def _fork_workers_from_this_server(out: Path, err: Path) -> None:
    """Keep the command from starting a server that would import everything again."""
    forkserver._forkserver.ensure_running = lambda: None  # its address came with the fork
    fork = processes._fork

    def fork_here(arguments, name):
        processes._work = partial(_work_as_child, dict(os.environ), out, err)
        return fork(arguments, name)

    processes._fork = fork_here


def _work_as_child(environment: Mapping[str, str], out: Path, err: Path, *arguments) -> None:
    """What a worker does, with what it would have inherited from a server of the command's own."""
    _take_over(environment, out, err)
    processes._work(*arguments)
