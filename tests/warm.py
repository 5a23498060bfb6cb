"""Commands in processes that are forked from a server which has torch imported: a second instead of five.

Tests of the start itself, of imports and of signals start Python afresh.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HANGS_AFTER_SECONDS = 1200.0
_context = multiprocessing.get_context("forkserver")


def call(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS`, with these variables beside the present ones."""
    _context.set_forkserver_preload(["lmsweep.training.preload"])
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
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, descriptor in ((out, 1), (err, 2)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
