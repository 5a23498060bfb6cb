"""What a data set is: a source gives raw images and labels, preparation makes three splits of them."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Images and their labels. Images are float in [0, 1], or uint8 (0 to 255) to save memory."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Source:
    """A data set as it comes: what training and validation are drawn from, and a test set that is fixed."""

    pool: Split
    test: Split
    num_classes: int
    validation_size: int


@dataclass(frozen=True)
class Dataset:
    """A data set as a run sees it."""

    train: Split
    val: Split
    test: Split
    num_classes: int
    fingerprint: dict[str, str | int] = field(default_factory=dict)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self.train.x.shape[1:])
