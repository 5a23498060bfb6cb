"""Batches by index: in memory there are no workers and no copies of single samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lmsweep.data.augment import Augmentation, as_pixels
from lmsweep.data.dataset import Batch, Split
from lmsweep.seeds import derive_seed


class EvaluationBatches:
    """Every sample once, in order, without augmentation."""

    def __init__(self, split: Split, size: int) -> None:
        self.split = split
        self.size = size

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[Batch]:
        parts = (slice(start, start + self.size) for start in range(0, len(self.split), self.size))
        for x, y in self.split.read(parts):
            yield as_pixels(x), y


class TrainingBatches:
    """An endless stream of shuffled batches; batch number n is the same however training came to it.

    The stream is one shuffled epoch after another without a gap, so every batch is full even when the
    training set is smaller than a batch, and every sample comes once per epoch. Augmentation is drawn anew
    for every batch, from a seed that depends on the batch's number.
    """

    def __init__(
        self, split: Split, size: int, *, seed: int, start: int = 0, augment: Augmentation | None = None
    ) -> None:
        self.split = split
        self.size = size
        self.seed = seed
        self.start = start
        self.augment = augment or Augmentation()

    def __iter__(self) -> Iterator[Batch]:
        batches = self.split.read(self._indices(), seed=self.seed, start=self.start)
        for number, (x, y) in enumerate(batches, self.start):
            yield self.augment(x, seed=derive_seed(self.seed, f"augment/{number}")), y

    def _indices(self) -> Iterator[Tensor]:
        epoch, offset = divmod(self.start * self.size, len(self.split))
        indices = self._epoch(epoch)[offset:]
        while True:
            parts = [indices]
            while sum(len(part) for part in parts) < self.size:
                epoch += 1
                parts.append(self._epoch(epoch))
            indices = torch.cat(parts)
            chosen, indices = indices[: self.size], indices[self.size :]
            yield chosen

    def _epoch(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, f"batches/{epoch}"))
        return torch.randperm(len(self.split), generator=generator).to(self.split.y.device)
