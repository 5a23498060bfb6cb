"""What a data set is: a source gives raw images and labels, preparation makes three splits of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lmsweep.data.augment import Augmentation
from lmsweep.seeds import ALL, Share

Batch = tuple[Tensor, Tensor]
Index = Tensor | slice


class Split:
    """Images and their labels in memory. Images are float in [0, 1], or uint8 (0 to 255) to save memory.

    `lmsweep.data.stream.StreamedSplit` has the same methods for images that stay on disk.
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x = x
        self.y = y

    def __len__(self) -> int:
        return len(self.y)

    @property
    def x(self) -> Tensor:
        """All images."""
        return self._x

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self._x.shape[1:])

    def select(self, indices: Tensor, labels: Tensor | None = None) -> "Split":
        """The samples at `indices`, with other labels when these are given."""
        return Split(self._x[indices], self.y[indices] if labels is None else labels)

    def with_labels(self, labels: Tensor) -> "Split":
        """The same samples with other labels."""
        return self.select(torch.arange(len(self)), labels)

    def to(self, device: torch.device | str) -> "Split":
        """The same samples, whose batches come on `device`."""
        return Split(self._x.to(device), self.y.to(device))

    def read(
        self, indices: Iterable[Index], *, seed: int | None = None, start: int = 0, share: Share = ALL
    ) -> Iterator[Batch]:
        """The batches at `indices`, as they are stored; only streamed splits use the other arguments."""
        for chosen in indices:
            yield self._x[chosen], self.y[chosen]


@dataclass(frozen=True)
class Source:
    """A data set as it comes: what training and validation are drawn from, and a test set that is fixed."""

    pool: Split
    test: Split
    num_classes: int
    validation_size: int


@dataclass(frozen=True)
class Dataset:
    """A data set as a run sees it; `clean` are the true labels of `val`, where some of them are wrong."""

    train: Split
    val: Split
    test: Split
    num_classes: int
    fingerprint: dict[str, str | int] = field(default_factory=dict)
    augment: Augmentation | None = None
    clean: Tensor | None = None
    remarks: tuple[str, ...] = ()  # what a reader of the results should know, a sentence each

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self.train.input_shape
