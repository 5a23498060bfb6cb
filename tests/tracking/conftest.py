"""One tracked sweep, shared by the tests that look at what it left."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.sweep.sweeping import TINY, command, statuses
from tests.tracking.reading import ReadBack, files_of, read_back
from tests.tracking.wandb_server import wandb_server


@dataclass
class Tracked:
    """A network that was trained and one that broke, as one sweep."""

    outputs: Path
    called: "subprocess.CompletedProcess[str]"
    requests: list[str]
    done: dict[str, str] = field(default_factory=dict)  # the method of each finished run
    failed: list[str] = field(default_factory=list)

    def read(self, name: str) -> ReadBack:
        (file,) = files_of(self.outputs, name)
        return read_back(file)


@pytest.fixture(scope="session")
def tracked_sweep(made_once) -> Tracked:
    return made_once("tracked", _sweep)


def _sweep(outputs: Path) -> Tracked:
    with wandb_server() as server:
        environment = {**os.environ, **server.environment(), "LMSWEEP_OUTPUTS": str(outputs)}
        words = command(
            *(
                "sweep=fig2_mnist_noise",
                "scale=smoke",
                "method=margin",
                "margin.norm=2",
                "seed=0",
                "margin.exact=false",
            ),
            *("data.label_noise=0", "tracking=wandb", "tracking.checkpoint=true", "telemetry.every=10"),
            "model._target_=lmsweep.models.ConvNet,tests.sweep.raising.Raising",
            "trainer.log_every=10",
            *TINY,
        )
        called = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=1200)
    tracked = Tracked(outputs, called, server.requests)
    for name, status in statuses(outputs).items():
        if status["state"] == "done":
            tracked.done[name] = status["about"]["method"]
        else:
            tracked.failed.append(name)
    return tracked
