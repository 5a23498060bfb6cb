"""Random numbers: one seed per purpose, so that a draw added in one place changes no other.

Numbers are drawn on the CPU and for the whole batch, so that they are the same on every device and for any
number of processes; each process takes its share of them and copies it to its device.
"""

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # figures use seeds too, and start faster without torch
    import torch
    from torch import Tensor


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 63-bit seed that depends on the run's `seed` and the name of the `purpose` only."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Share(NamedTuple):
    """The share of every batch that one of several processes takes.

    Process `rank` of `size` takes every `size`-th sample, so a batch is the same for any `size`, and what is
    true of the first half of a batch is true of the first half of every share.
    """

    rank: int = 0
    size: int = 1

    def of(self, whole: "Tensor") -> "Tensor":
        """Our samples, out of a tensor that has a row for each sample of the whole batch."""
        return whole[self.rank :: self.size]

    def whole(self, count: int) -> int:
        """How many samples the whole batch has when our share has `count`."""
        return count * self.size

    def position(self, index: int) -> int:
        """Where in the whole batch our sample number `index` is."""
        return index * self.size + self.rank

    def first(self, count: int) -> int:
        """How many of the first `count` samples of the whole batch are ours."""
        return len(range(self.rank, count, self.size))


ALL = Share()


def to_device(values: "Tensor", device: "torch.device") -> "Tensor":
    """Copy a tensor from the CPU to `device` without waiting for the device.

    A copy to a GPU from ordinary memory stops the host until all work queued before is done; a copy from
    pinned memory does not, and torch keeps that memory until the copy has happened.
    """
    pinned = values.pin_memory() if device.type == "cuda" else values
    return pinned.to(device, non_blocking=True)
