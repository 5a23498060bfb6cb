"""The share of every batch that one of several processes takes."""

from typing import NamedTuple

from torch import Tensor


class Share(NamedTuple):
    """Process `rank` of `size` takes every `size`-th sample, so a batch is the same one for any `size`.

    Random numbers are drawn for the whole batch and shared out like the samples; what is true of the first
    half of a batch is true of the first half of every share.
    """

    rank: int = 0
    size: int = 1

    def of(self, whole: Tensor) -> Tensor:
        """Our samples, out of something that has a row for each sample of the whole batch."""
        return whole[self.rank :: self.size]

    def whole(self, count: int) -> int:
        """How many samples the batch has of which ours are `count`."""
        return count * self.size

    def position(self, index: int) -> int:
        """Where in the whole batch our sample number `index` is."""
        return index * self.size + self.rank

    def first(self, count: int) -> int:
        """How many of the first `count` samples of the whole batch are ours."""
        return len(range(self.rank, count, self.size))


ALL = Share()
