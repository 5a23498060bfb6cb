"""Commands in processes that are forked from a server which has their imports: a second instead of five.

Workers that such a command starts come from the same server, not from one of their own. Tests of the start
itself, of imports and of signals start Python afresh.
"""

import multiprocessing
import os
import runpy
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


def call(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS`, with these variables beside the present ones."""
    _context.set_forkserver_preload(list(PRELOADED))
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _context.Process(
            target=_become, args=(module, arguments, {**os.environ, **environment}, Path.cwd(), out, err)
        )
        process.start()
        process.join(HANGS_AFTER_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"python -m {module} did not end within {HANGS_AFTER_SECONDS:.0f} s")
        words = ["python", "-m", module, *arguments]
        return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


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
