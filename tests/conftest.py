"""Shared by all tests: one torch thread, and the command line as a user starts it."""

import fcntl
import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from lmsweep.models import ConvNet
from tests import warm

torch.set_num_threads(1)
# A busy machine is slow, and no test may look at a clock.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

Command = Callable[..., subprocess.CompletedProcess[str]]


# Files that take longest, the longest first: begun last, one of them would keep all but one process waiting.
LONG = (
    *("commands/test_reproduce.py", "sweep/test_slurm.py", "sweep/test_local.py", "test_pages.py"),
    *("store/test_damage.py", "evaluation/test_commands.py", "config/test_sweeps.py", "commands/test_run.py"),
    *("figures/test_live.py", "figures/test_report_in_chromium.py", "figures/test_halving.py"),
    *("training/test_ddp.py", "methods/test_ddp.py", "methods/test_adversarial.py", "methods/test_audit.py"),
    *("sweep/test_launcher.py", "commands/test_jupyter.py", "test_readme.py", "training/test_speed.py"),
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports make many objects and hardly any garbage: looking for it took a fifth of their time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long files begin first, and leave all else in its order."""
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def lmsweep_command() -> Command:
    """`lmsweep ...` in a process of its own, and with a store of its own; `fresh` is not forked."""

    def call(
        *arguments: str, outputs: Path, fresh: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        environment["LMSWEEP_OUTPUTS"] = str(outputs)
        if not fresh:
            return warm.call("lmsweep", *arguments, **environment)
        return subprocess.run(
            [sys.executable, "-m", "lmsweep", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=1200,
        )

    return call


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], Any]], Any]:
    """Calls `make` with a folder in the first worker process of the tests that asks; others get its value."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], Any]) -> Any:
        kept = shared / f"{name}.pickle"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_bytes(pickle.dumps(make(shared / name)))
        return pickle.loads(kept.read_bytes())  # noqa: S301 - written above

    return made


@pytest.fixture
def clock_of_samples(monkeypatch) -> SimpleNamespace:
    """For probes, in place of the real clock: one that only samples move on their way through a network."""
    clock = SimpleNamespace(seconds=0.0)
    clock.monotonic = clock.process_time = lambda: clock.seconds

    def forward(self, x, before=ConvNet.forward):
        clock.seconds += 2e-5 * len(x) * (3 if self.training else 1)
        return before(self, x)

    monkeypatch.setattr(ConvNet, "forward", forward)
    monkeypatch.setattr("lmsweep.training.run.time", clock)
    return clock


@pytest.fixture(autouse=True)
def _hear_ctrl_c() -> None:
    """What a test starts must hear Ctrl-C, which a shell's background jobs, and their children, ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
