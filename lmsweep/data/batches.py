"""Batches for training and evaluation, cut out of a split by index."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from lmsweep.data.augment import Augmentation, as_pixels
from lmsweep.data.dataset import Batch, Split
from lmsweep.seeds import ALL, Share, derive_seed, to_device


class EvaluationBatches:
    """Every sample once, in order, without augmentation.

    Of several processes each takes a part of the samples, and all take the same number of batches, because
    they wait for each other. A split with fewer samples than processes is evaluated whole by every process,
    which leaves every mean as it is.
    """

    def __init__(self, split: Split, size: int, share: Share = ALL) -> None:
        self.split = split
        self.size = size
        self.share = share if len(split) >= share.size else ALL

    def __len__(self) -> int:
        return len(self._parts())

    def _parts(self) -> list[slice]:
        rank, processes = self.share
        total = len(self.split)
        if processes == 1:
            return [slice(start, start + self.size) for start in range(0, total, self.size)]
        first, end = total * rank // processes, total * (rank + 1) // processes
        count = min(total // processes, -(-total // (processes * self.size)))
        edges = [first + (end - first) * number // count for number in range(count + 1)]
        return [slice(start, stop) for start, stop in pairwise(edges)]

    def __iter__(self) -> Iterator[Batch]:
        for x, y in self.split.read(iter(self._parts())):
            yield as_pixels(x), y


class TrainingBatches:
    """An endless stream of shuffled batches; batch number n is the same however training came to it.

    The stream is one shuffled epoch after another without a gap, so every batch is full even when the
    training set is smaller than a batch, and every sample comes once per epoch. Augmentation is drawn anew
    for every batch, from a seed that depends on the batch's number. Of several processes each takes its
    `share` of every batch of `size`.
    """

    def __init__(
        self,
        split: Split,
        size: int,
        *,
        seed: int,
        start: int = 0,
        augment: Augmentation | None = None,
        share: Share = ALL,
    ) -> None:
        if size % share.size:
            raise ValueError(f"a batch of {size} cannot be shared evenly by {share.size} processes")
        self.split = split
        self.size = size
        self.seed = seed
        self.start = start
        self.augment = augment or Augmentation()
        self.share = share

    def __iter__(self) -> Iterator[Batch]:
        indices = (self.share.of(whole) for whole in self._indices())
        batches = self.split.read(indices, seed=self.seed, start=self.start, share=self.share)
        for number, (x, y) in enumerate(batches, self.start):
            yield self.augment(x, seed=derive_seed(self.seed, f"augment/{number}"), share=self.share), y

    def _indices(self) -> Iterator[Tensor]:
        epoch, offset = divmod(self.start * self.size, len(self.split))
        indices = self._epoch(epoch)[offset:]
        while True:
            # Indices are copied only where two epochs meet: those left of an epoch can be many.
            while len(indices) < self.size:
                epoch += 1
                indices = torch.cat([indices, self._epoch(epoch)])
            chosen, indices = indices[: self.size], indices[self.size :]
            yield chosen

    def _epoch(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, f"batches/{epoch}"))
        return to_device(torch.randperm(len(self.split), generator=generator), self.split.y.device)
