"""Batches by index from tensors in memory: no workers, no copies of single samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lmsweep.data.dataset import Split
from lmsweep.seeds import derive_seed

Batch = tuple[Tensor, Tensor]


def as_pixels(x: Tensor) -> Tensor:
    """Images as float in [0, 1]."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


class EvaluationBatches:
    """Every sample once, in order."""

    def __init__(self, split: Split, size: int) -> None:
        self.split = split
        self.size = size

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.split), self.size):
            part = slice(start, start + self.size)
            yield as_pixels(self.split.x[part]), self.split.y[part]


class TrainingBatches:
    """An endless stream of shuffled batches; batch number n is the same however training came to it.

    The stream is one shuffled epoch after another without a gap, so every batch is full even when the
    training set is smaller than a batch, and every sample comes once per epoch.
    """

    def __init__(self, split: Split, size: int, *, seed: int, start: int = 0) -> None:
        self.split = split
        self.size = size
        self.seed = seed
        self.start = start

    def __iter__(self) -> Iterator[Batch]:
        epoch, offset = divmod(self.start * self.size, len(self.split))
        indices = self._epoch(epoch)[offset:]
        while True:
            while len(indices) < self.size:
                epoch += 1
                indices = torch.cat([indices, self._epoch(epoch)])
            chosen, indices = indices[: self.size], indices[self.size :]
            yield as_pixels(self.split.x[chosen]), self.split.y[chosen]

    def _epoch(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, f"batches/{epoch}"))
        return torch.randperm(len(self.split), generator=generator).to(self.split.y.device)
