"""The seconds of `lmsweep --help` in a fresh process, beside those of importing torch alone."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.harness import Measured, alternate, ratio, summary

ROUNDS = 7


def measure(_: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    ways = {
        "help": partial(_call, "-m", "lmsweep", "--help"),
        "torch": partial(_call, "-c", "import torch"),
    }
    imported = _call("-X", "importtime", "-m", "lmsweep", "--help").stderr
    if any(line.rpartition("|")[2].strip() == "torch" for line in imported.splitlines()):
        raise RuntimeError("lmsweep --help imports torch")
    times = alternate(ways, rounds=ROUNDS)
    yield summary("start_up/help", times["help"], "s", "without importing torch")
    yield ratio("start_up/help, in times of importing torch", times["help"], times["torch"])


def _call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True)  # noqa: S603 - our own command
