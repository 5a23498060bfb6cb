"""How long one epoch of MNIST takes as batches in memory, and by a torchvision DataLoader.

python benchmarks/batches.py [batch size] (needs MNIST in LMSWEEP_DATA). Both give shuffled float batches in
[0, 1]; they take turns, and the median of each is compared, so that a busy machine slows both alike.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterable
from itertools import islice

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor

from lmsweep.data import TrainingBatches, mnist
from lmsweep.errors import UserError

ROUNDS = 3


def seconds(batches: Iterable[object]) -> float:
    """How long it takes to go through all batches."""
    started = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - started


def main(batch_size: int) -> None:
    """Print a line per way of loading."""
    torch.set_num_threads(1)
    root = os.environ.get("LMSWEEP_DATA", "data")
    source = mnist.load(root)
    steps = len(source.pool) // batch_size
    pictures = MNIST(root, transform=ToTensor())
    loaders: dict[str, Iterable[object]] = {
        f"DataLoader, {workers} workers": DataLoader(
            pictures, batch_size, shuffle=True, drop_last=True, num_workers=workers
        )
        for workers in (0, 2)
    }
    times: dict[str, list[float]] = {name: [] for name in ("in memory", *loaders)}
    for _ in range(ROUNDS):
        times["in memory"].append(seconds(islice(TrainingBatches(source.pool, batch_size, seed=0), steps)))
        for name, loader in loaders.items():
            times[name].append(seconds(loader))
    fastest = statistics.median(times["in memory"])
    print(f"one epoch of MNIST, {steps} batches of {batch_size}, median of {ROUNDS}:")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:22} {median:7.3f} s  {median / fastest:6.1f} x")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 128)
    except UserError as error:
        sys.exit(str(error))
