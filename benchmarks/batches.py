"""Samples per second of batches in memory, in those of torchvision's MNIST behind a DataLoader.

Both give shuffled float batches in [0, 1] of the same images, which are random: speed does not depend on what
they show. The DataLoader has no workers or two, whichever is faster.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor

from benchmarks.harness import Measured, alternate, ratio
from lmsweep.data import Split, TrainingBatches

SAMPLES, SIZE, ROUNDS = 20_000, 128, 5
EPOCHS = 10  # of ours in a turn, which would be over in a blink


def measure(_: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (SAMPLES, 28, 28), dtype=torch.uint8)
    labels = torch.randint(10, (SAMPLES,))
    pictures = _torchvision_mnist(images, labels)
    ours = TrainingBatches(Split(images.unsqueeze(1), labels), SIZE, seed=0)
    ways = {
        f"{workers} workers": partial(_walk, DataLoader(pictures, SIZE, shuffle=True, num_workers=workers))
        for workers in (0, 2)
    }
    times = alternate({"ours": partial(_walk, ours, EPOCHS), **ways}, rounds=ROUNDS)
    times["ours"] = [seconds / EPOCHS for seconds in times["ours"]]
    fastest = min(ways, key=lambda name: statistics.median(times[name]))
    rate = SAMPLES / statistics.median(times["ours"])
    note = f"{rate:,.0f} samples per second; the DataLoader has {fastest}"
    yield ratio("batches/in memory", times[fastest], times["ours"], note)


def _walk(batches: Iterable[object], epochs: int = 1) -> None:
    expected = -(-SAMPLES // SIZE) * epochs
    count = sum(1 for _ in islice(batches, expected))
    if count != expected:
        raise RuntimeError(f"{count} batches of {SIZE} are not {epochs} epochs of {SAMPLES}")


def _torchvision_mnist(images: torch.Tensor, labels: torch.Tensor) -> MNIST:
    """torchvision's data set as it is after reading its files, with other images in it."""
    pictures = MNIST.__new__(MNIST)
    pictures.data, pictures.targets = images, labels
    pictures.transform, pictures.target_transform = ToTensor(), None
    return pictures
