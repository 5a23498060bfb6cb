"""How long `lmsweep` takes in a fresh process: for help, and for a run that is done already."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks.harness import Measured, alternate, beside_torch, import_torch

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
        ways: dict[str, Callable[[], object]] = {
            "help": partial(call, *asked),
            "done": partial(call, *done),
            "torch": import_torch,
        }
        times = alternate(ways, rounds=ROUNDS)
    yield beside_torch("start_up/help", times, "help", "without importing torch")
    yield beside_torch("start_up/run that is done already", times, "done", "without importing torch")


def _call(outputs: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LMSWEEP_OUTPUTS": outputs}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
