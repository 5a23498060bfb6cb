"""The seconds of `lmsweep` in a fresh process: for help, and for a run that is done already."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.harness import Measured, alternate, ratio, summary

ROUNDS = 7


def measure(_: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    asked = ("-m", "lmsweep", "--help")
    done = ("-m", "lmsweep", "method=xent", "trainer.max_steps=2", "trainer.val_every=2", "model.width=2")
    with tempfile.TemporaryDirectory() as outputs:
        call = partial(_call, outputs)
        call(*done)
        for words in (asked, done):
            imported = call("-X", "importtime", *words).stderr
            if any(line.rpartition("|")[2].strip() == "torch" for line in imported.splitlines()):
                raise RuntimeError(f"python {' '.join(words)} imports torch")
        ways = {
            "help": partial(call, *asked),
            "done": partial(call, *done),
            "torch": partial(call, "-c", "import torch"),
        }
        times = alternate(ways, rounds=ROUNDS)
    yield summary("start_up/help", times["help"], "s", "without importing torch")
    yield summary("start_up/run that is done already", times["done"], "s", "without importing torch")
    yield ratio("start_up/help, in times of importing torch", times["help"], times["torch"])


def _call(outputs: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LMSWEEP_OUTPUTS": outputs}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
