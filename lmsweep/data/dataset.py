"""A data set: a source gives images and labels, preparation makes three splits, and splits give batches."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from lmsweep.data.augment import NO_AUGMENTATION, Augmentation, as_pixels
from lmsweep.seeds import ALL, Share, derive_seed, to_device

Batch = tuple[Tensor, Tensor]
Index = Tensor | slice


class Split:
    """Images and their labels in memory. Images are float in [0, 1], or uint8 (0 to 255) to save memory.

    `lmsweep.data.imagenet.StreamedSplit` has the same methods for images that stay on disk.
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x = x
        self.y = y

    def __len__(self) -> int:
        return len(self.y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self.x.shape[1:])

    def select(self, indices: Tensor, labels: Tensor | None = None) -> "Split":
        """The samples at `indices`, with other labels when these are given."""
        return Split(self.x[indices], self.y[indices] if labels is None else labels)

    def with_labels(self, labels: Tensor) -> "Split":
        """The same samples with other labels."""
        return self.select(torch.arange(len(self)), labels)

    def to(self, device: torch.device | str) -> "Split":
        """The same samples, with their batches on `device`."""
        return Split(self.x.to(device), self.y.to(device))

    def read(
        self, indices: Iterable[Index], *, seed: int | None = None, start: int = 0, share: Share = ALL
    ) -> Iterator[Batch]:
        """The batches at `indices`, as they are stored; only streamed splits use the other arguments."""
        for chosen in indices:
            yield self.x[chosen], self.y[chosen]


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
    augment: Augmentation = NO_AUGMENTATION
    clean: Tensor | None = None
    remarks: tuple[str, ...] = ()  # what a reader of the results should know, a sentence each

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self.train.input_shape

    def evaluated_on(self, val: Tensor, test: Tensor) -> "Dataset":
        """The same data with these samples to validate and to test on; training keeps all."""
        clean = None if self.clean is None else self.clean[val]
        return replace(self, val=self.val.select(val), test=self.test.select(test), clean=clean)

    def with_training(self, chosen: Tensor) -> "Dataset":
        """The same data with some of its training samples only, by their place among them."""
        train = self.train.select(chosen)
        digests = {"train_indices": _digest(chosen), "train_labels": _digest(train.y)}
        fingerprint = {**self.fingerprint, "train_size": len(train), **digests}
        return replace(self, train=train, fingerprint=fingerprint)


def prepare(source: Source, *, seed: int, fraction: float = 1.0, label_noise: float = 0.0) -> Dataset:
    """Make the splits of a run. Each draw has a seed of its own, so methods and models share all of them.

    Validation labels are flipped like training labels: whoever has noisy labels has no clean ones to choose
    weights by. What clean ones would choose is recorded beside it. Test labels are never flipped.
    """
    if source.num_classes < 2:
        raise ValueError(f"a data set of {source.num_classes} class has nothing to tell apart")
    order = _permutation(len(source.pool), derive_seed(seed, "split"))
    held_out, rest = order[: source.validation_size], order[source.validation_size :]
    # Fractions are prefixes of one order, so that a smaller set lies inside every larger one.
    rest = rest[_permutation(len(rest), derive_seed(seed, "subset"))]
    kept = rest[: subset_size(len(rest), fraction)]
    labels = source.pool.y
    for members in (kept, held_out):
        labels = flip_labels(labels, members, source.num_classes, label_noise, derive_seed(seed, "noise"))
    train = source.pool.select(kept, labels[kept])
    val = source.pool.select(held_out, labels[held_out])
    fingerprint: dict[str, str | int] = {
        "train_size": len(train),
        "val_size": len(val),
        "test_size": len(source.test),
        "train_indices": _digest(kept),
        "train_labels": _digest(train.y),
        "val_indices": _digest(held_out),
        "val_labels": _digest(val.y),
        "flipped": int((source.pool.y[kept] != train.y).sum()),
    }
    clean = source.pool.y[held_out]
    absent = source.num_classes - len(source.pool.y[kept].unique())
    remark = f"{absent} of {source.num_classes} classes have no sample among the {len(kept)} for training"
    return Dataset(
        train,
        val,
        source.test,
        source.num_classes,
        fingerprint,
        clean=None if torch.equal(clean, val.y) else clean,
        remarks=(remark,) if absent else (),  # meant, or a mistake in the data or too small a fraction
    )


def fixed_choice(size: int, most: int) -> Tensor:
    """Which samples of a split stand for all: the same in every run, smaller choices inside larger ones."""
    return _permutation(size, derive_seed(0, "evaluation"))[:most].sort().values


def subset_size(available: int, fraction: float) -> int:
    """The paper's rounding: 0.125% of 55,000 are 68 samples."""
    return max(1, int(available * fraction + 1e-6))  # 1e-6: 0.29 * 100 is a little less than 29


def flip_labels(labels: Tensor, members: Tensor, num_classes: int, fraction: float, seed: int) -> Tensor:
    """Return `labels` with exactly `fraction` of `members` moved to another class chosen at random.

    Who flips first and where to is drawn once for all samples of the pool: more noise adds flips to those of
    less noise, and a sample flips to the same class in every subset.
    """
    generator = torch.Generator().manual_seed(seed)
    rank = torch.rand(len(labels), generator=generator)
    shift = torch.randint(1, num_classes, (len(labels),), generator=generator)
    count = int(len(members) * fraction + 0.5)
    flipped = members[rank[members].argsort(stable=True)[:count]]
    noisy = labels.clone()
    noisy[flipped] = (labels[flipped] + shift[flipped]) % num_classes
    return noisy


def _permutation(size: int, seed: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


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


@dataclass(eq=False)
class TrainingBatches:
    """An endless stream of shuffled batches; batch number n is the same however training came to it.

    The stream is one shuffled epoch after another without a gap, so every batch is full even when the
    training set is smaller than a batch, and every sample comes once per epoch. Augmentation is drawn anew
    for every batch, from a seed that depends on the batch's number. Of several processes each takes its
    `share` of every batch of `size`.
    """

    split: Split
    size: int
    _: KW_ONLY
    seed: int
    start: int = 0
    augment: Augmentation = NO_AUGMENTATION
    share: Share = ALL

    def __post_init__(self) -> None:
        if self.size % self.share.size:
            raise ValueError(f"a batch of {self.size} cannot be shared evenly by {self.share.size} processes")

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
        order = _permutation(len(self.split), derive_seed(self.seed, f"batches/{epoch}"))
        return to_device(order, self.split.y.device)
