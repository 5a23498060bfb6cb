"""What a sweep costs beside its training: our launcher, Hydra's joblib launcher, and a process per run.

The overhead of a run is wall time times workers minus the time spent inside training, over the number of
runs; the start of the sweep is part of it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Measured, ratio, summary

WORKERS, ROUNDS = 2, 3
RUNS = 40
FEW = 2  # processes per run have nothing to share, so that each of a few costs what each of many does
TINY = ("method=xent", "trainer.max_steps=20", "trainer.val_every=10", "model.width=4")


def measure(_: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    joblib = ("hydra/launcher=joblib", f"hydra.launcher.n_jobs={WORKERS}")
    ways: dict[str, tuple[int, Callable[[Path, int], None]]] = {
        "ours": (RUNS, lambda to, runs: _launched(to, runs, f"hydra.launcher.jobs={WORKERS}")),
        "joblib": (RUNS, lambda to, runs: _launched(to, runs, *joblib)),
        "a process per run": (FEW, _one_by_one),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            runs, way = ways[name]
            if number == 0 or runs == RUNS:  # once is enough for what takes many times as long
                seconds[name].append(_overhead(name, runs, way))
    others = {name: min(values) for name, values in seconds.items() if name != "ours"}
    note = ", ".join(f"{name} {value:.2f} s" for name, value in others.items())
    yield summary("sweep_overhead/seconds per run", seconds["ours"], "s", note)
    fastest = min(others, key=others.__getitem__)
    theirs = seconds[fastest] if fastest == "joblib" else seconds[fastest] * ROUNDS
    yield ratio("sweep_overhead/of joblib and processes", seconds["ours"], theirs, f"of {fastest}")


def _overhead(name: str, runs: int, way: Callable[[Path, int], None]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        way(Path(folder), runs)
        wall = time.monotonic() - started
        results = [json.loads(path.read_text()) for path in Path(folder).glob("runs/*/results.json")]
    if len(results) != runs:
        raise RuntimeError(f"{name}: {len(results)} of {runs} runs were trained")
    return (wall * WORKERS - sum(result["seconds"] for result in results)) / runs


def _launched(outputs: Path, runs: int, *launcher: str) -> None:
    """One sweep by Hydra."""
    command = [sys.executable, "-m", "lmsweep", "-m", *TINY, f"seed=range({runs})", *launcher]
    subprocess.run(command, env=_environment(outputs), check=True, capture_output=True)  # noqa: S603 - our own command


def _one_by_one(outputs: Path, runs: int) -> None:
    """A plain process per run, as many at once as there are workers."""
    waiting, running = deque(range(runs)), list[subprocess.Popen[bytes]]()
    while waiting or running:
        while waiting and len(running) < WORKERS:
            command = [sys.executable, "-m", "lmsweep", *TINY, f"seed={waiting.popleft()}"]
            running.append(
                subprocess.Popen(  # noqa: S603 - our own command
                    command, env=_environment(outputs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        running = [process for process in running if process.poll() is None]
        time.sleep(0.01)


def _environment(outputs: Path) -> dict[str, str]:
    return {**os.environ, "LMSWEEP_OUTPUTS": str(outputs), "OMP_NUM_THREADS": "1"}
