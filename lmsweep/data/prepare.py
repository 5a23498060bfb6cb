"""From a source to the splits of one run: hold out validation, take a fraction, flip labels."""

import hashlib

import torch
from torch import Tensor

from lmsweep.data.dataset import Dataset, Source
from lmsweep.seeds import derive_seed


def prepare(
    source: Source,
    *,
    seed: int,
    fraction: float = 1.0,
    label_noise: float = 0.0,
) -> Dataset:
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
    noise_seed = derive_seed(seed, "noise")
    labels = flip_labels(source.pool.y, kept, source.num_classes, label_noise, noise_seed)
    labels = flip_labels(labels, held_out, source.num_classes, label_noise, noise_seed)
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
    return Dataset(
        train,
        val,
        source.test,
        source.num_classes,
        fingerprint,
        clean=None if torch.equal(clean, val.y) else clean,
        remarks=_remarks(source.pool.y[kept], source.num_classes),
    )


def _remarks(labels: Tensor, num_classes: int) -> tuple[str, ...]:
    """What may be meant, and may be a mistake in the data or a fraction that is too small."""
    absent = num_classes - len(labels.unique())
    if not absent:
        return ()
    return (f"{absent} of {num_classes} classes have no sample among the {len(labels)} for training",)


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
