"""Shared by all tests: one torch thread, and the command line as a user starts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def lmsweep_command() -> Command:
    """`python -m lmsweep ...` in a process of its own, with a store of its own."""

    def call(*arguments: str, outputs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lmsweep", *arguments],
            env={**os.environ, "LMSWEEP_OUTPUTS": str(outputs), **environment},
            capture_output=True,
            text=True,
            timeout=1200,
        )

    return call


@pytest.fixture(autouse=True)
def _hear_ctrl_c() -> None:
    """What a test starts must hear Ctrl-C, which a shell's background jobs, and their children, ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
