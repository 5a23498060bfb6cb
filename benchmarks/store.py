"""The time to draw a figure whose runs are all in the store, and to collect ten thousand runs.

The stores are made by the code that makes real ones; only the numbers in their results are invented.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.compose import configured
from benchmarks.harness import Measured, alternate, beside_torch, import_torch
from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import read_sweep
from lmsweep.figures.collect import run_rows
from lmsweep.store.overview import overview
from lmsweep.store.store import Store

FIGURE, MANY, ROUNDS = "fig2_mnist_noise", 10_000, 5
# What was just written is read from memory wherever it is, but a disk takes minutes to delete 40,000 files.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of our own is made inside
AXES = ("data.label_noise", "data.fraction")


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        if "store/figure with everything cached" in rows:
            yield _figure(Path(folder, "figure"))
        if any("10,000" in row for row in rows):
            yield from _collected(Path(folder, "many"))


def _figure(outputs: Path) -> Measured:
    sweep = read_sweep(FIGURE, "smoke", [f"outputs={outputs}"])
    fill(sweep.runs, outputs)
    command = [sys.executable, "-m", "lmsweep", "reproduce", FIGURE, "--scale", "smoke"]
    environment = {**os.environ, "LMSWEEP_OUTPUTS": str(outputs)}

    def draw() -> None:
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
        if f"{len(sweep.runs)} runs: {len(sweep.runs)} cached" not in done.stdout:
            raise RuntimeError(f"the figure did not find its runs:\n{done.stdout}")

    times = alternate({"draw": draw, "torch": import_torch}, rounds=ROUNDS)
    if not (outputs / "figures" / "smoke" / f"{FIGURE}.png").exists():
        raise RuntimeError("the figure was not drawn")
    note = f"make reproduce-figure, {len(sweep.runs)} runs"
    return beside_torch("store/figure with everything cached", times, "draw", note)


def _collected(outputs: Path) -> Iterator[Measured]:
    runs = {config.id: config for config in _many(outputs)}
    began = time.perf_counter()
    fill(runs, outputs)
    note = f"written in {time.perf_counter() - began:.0f} s"

    def seen() -> None:
        rows = overview(outputs)
        if sum(row["state"] == "done" for row in rows) != MANY:
            raise RuntimeError(f"{len(rows)} runs were seen")

    def collected() -> None:
        if len(run_rows(runs, Store(outputs), AXES)) != MANY:
            raise RuntimeError("not every run was collected")

    times = alternate({"overview": seen, "points": collected, "torch": import_torch}, rounds=ROUNDS)
    yield beside_torch("store/overview of 10,000 runs", times, "overview", note)
    yield beside_torch("store/points of 10,000 runs", times, "points")


def _many(outputs: Path) -> Iterator[RunConfig]:
    """Ten thousand runs of one sweep: methods, noise, fractions and seeds."""
    another = ("method=margin", "margin.norm=inf", "margin.layers=input")
    for method in (("method=xent",), ("method=hinge",), ("method=margin",), another):
        base = configured(*method, f"outputs={outputs}")
        for noise, fraction in product((0.0, 0.2, 0.4, 0.6, 0.8), (1.0, 0.5, 0.25, 0.1, 0.05)):
            data = base.data.model_copy(update={"label_noise": noise, "fraction": fraction})
            for seed in range(MANY // 100):
                yield base.model_copy(update={"data": data, "seed": seed})


def fill(runs: Mapping[str, RunConfig], outputs: Path) -> None:
    """Put finished runs into a store, by the store's own code; it need not survive a power cut."""
    store = Store(outputs)
    with patch("os.fsync"):
        for name, config in runs.items():
            claimed = store.lease(name, config.to_dict(), config.about())
            if claimed is None:
                raise RuntimeError(f"{name} is there already")
            claimed.finish(_results(name, config))


def _results(name: str, config: RunConfig) -> dict[str, Any]:
    accuracy = 0.5 + (int(name, 16) % 1000) / 2000
    metrics = {
        f"{split}_{key}": value
        for split in ("train", "val", "test")
        for key, value in (("accuracy", accuracy), ("loss", 2 - accuracy))
    }
    return {
        "id": name,
        "method": config.method_name(),
        "seed": config.seed,
        "metrics": {"selected_step": 100, "steps": 200, **metrics},
        "data": {"name": config.data.name},
        "seconds": 2.0,
        "train_seconds": 1.9,
        "provenance": {},
        "cost_key": "bench",
    }
