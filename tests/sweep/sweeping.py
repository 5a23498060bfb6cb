"""A small sweep in processes of its own, and what it leaves."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests import warm

TINY = ("trainer.max_steps=20", "trainer.val_every=10", "trainer.batch_size=16", "model.width=2")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lmsweep", "-m", *arguments]


def environment(outputs: Path) -> dict[str, str]:
    return {**os.environ, "LMSWEEP_OUTPUTS": str(outputs)}


def start(outputs: Path, *arguments: str) -> warm.Started:
    return warm.start("lmsweep", "-m", *arguments, LMSWEEP_OUTPUTS=str(outputs))


def start_afresh(outputs: Path, *arguments: str) -> subprocess.Popen[str]:
    """For signals: nothing of the process was made by a test."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(outputs),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sweep(outputs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A sweep that nothing disturbs, from its start to its end."""
    return warm.completed(start(outputs, *arguments))


def folders(outputs: Path) -> list[Path]:
    return sorted(path.parent for path in (outputs / "runs").glob("*/status.json"))


def statuses(outputs: Path) -> dict[str, dict]:
    return {folder.name: json.loads((folder / "status.json").read_text()) for folder in folders(outputs)}


def states(outputs: Path) -> list[str]:
    return sorted(status["state"] for status in statuses(outputs).values())


def metrics(outputs: Path) -> dict[str, tuple[dict, str]]:
    """Everything that must not depend on what happened on the way."""
    return {
        folder.name: (
            json.loads((folder / "results.json").read_text())["metrics"],
            (folder / "metrics.jsonl").read_text(),
        )
        for folder in folders(outputs)
    }


def running(outputs: Path) -> list[int]:
    return [s["pid"] for s in statuses(outputs).values() if s["state"] == "running"]


def wait_until(condition, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
