"""Splits, fractions and flips: exact, nested, and functions of their own seeds only."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmsweep.data import Source, Split, prepare
from lmsweep.data.dataset import flip_labels, subset_size
from lmsweep.training.build import build_data
from tests.config.test_run import config

sizes = st.integers(30, 300)
fractions = st.floats(0.01, 1.0)
noises = st.floats(0.0, 0.95)
seeds = st.integers(0, 2**32)
classes = st.integers(2, 12)


def numbered(size: int, num_classes: int = 10, validation_size: int = 10) -> Source:
    """Sample i is the image i, so that a split tells which samples it has."""
    x = torch.arange(size).view(-1, 1).float()
    y = torch.arange(size) % num_classes
    return Source(Split(x, y), Split(x[:5] + 10_000, y[:5]), num_classes, validation_size)


def members(split: Split) -> list[int]:
    return split.x.flatten().long().tolist()


@given(sizes, fractions, noises, seeds, classes)
@settings(max_examples=80)
def test_splits_are_disjoint_whole_and_exactly_as_noisy_as_asked(size, fraction, noise, seed, num_classes):
    source = numbered(size, num_classes)
    data = prepare(source, seed=seed, fraction=fraction, label_noise=noise)
    train, val = members(data.train), members(data.val)
    assert len(train) == subset_size(size - 10, fraction)
    assert len(val) == 10
    assert len(set(train) | set(val)) == len(train) + len(val)
    assert set(train) | set(val) <= set(range(size))
    for split, indices in ((data.train, train), (data.val, val)):
        true = source.pool.y[indices]
        assert int((split.y != true).sum()) == int(len(indices) * noise + 0.5)
        assert int(split.y.min()) >= 0
        assert int(split.y.max()) < num_classes
    assert data.test is source.test
    assert data.fingerprint["flipped"] == int(len(train) * noise + 0.5)


@given(sizes, fractions, fractions, noises, seeds)
@settings(max_examples=60)
def test_a_smaller_fraction_lies_inside_a_larger_one(size, one, two, noise, seed):
    low, high = sorted((one, two))
    small, large = (
        members(prepare(numbered(size), seed=seed, fraction=f, label_noise=noise).train) for f in (low, high)
    )
    assert small == large[: len(small)]


@given(sizes, noises, noises, seeds, fractions)
@settings(max_examples=60)
def test_more_noise_adds_flips_and_changes_none(size, one, two, seed, fraction):
    source = numbered(size)
    low, high = sorted((one, two))
    less, more = (prepare(source, seed=seed, fraction=fraction, label_noise=n).train for n in (low, high))
    true = source.pool.y[members(less)]
    flipped = less.y != true
    assert torch.equal(less.y[flipped], more.y[flipped])


@given(seeds, noises)
@settings(max_examples=30)
def test_the_draws_depend_on_the_seed_and_nothing_else(seed, noise):
    source = numbered(200)
    first = prepare(source, seed=seed, label_noise=noise, fraction=0.5)
    torch.manual_seed(seed + 1)
    torch.rand(17)
    np.random.default_rng().random(3)
    random.random()
    again = prepare(source, seed=seed, label_noise=noise, fraction=0.5)
    assert first.fingerprint == again.fingerprint
    assert torch.equal(first.train.y, again.train.y)
    other = prepare(source, seed=seed + 1, label_noise=noise, fraction=0.5)
    assert other.fingerprint["train_indices"] != first.fingerprint["train_indices"]


def test_preparing_leaves_the_global_generators_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    prepare(numbered(100), seed=1, fraction=0.5, label_noise=0.4)
    assert torch.equal(torch.get_rng_state(), before)


def test_members_do_not_depend_on_noise_nor_the_split_on_the_fraction():
    source = numbered(200)
    clean = prepare(source, seed=5, fraction=0.3)
    noisy = prepare(source, seed=5, fraction=0.3, label_noise=0.8)
    whole = prepare(source, seed=5)
    assert clean.fingerprint["train_indices"] == noisy.fingerprint["train_indices"]
    assert clean.fingerprint["train_labels"] != noisy.fingerprint["train_labels"]
    assert clean.fingerprint["val_indices"] == whole.fingerprint["val_indices"]


def test_clean_validation_labels_come_beside_noisy_ones():
    source = numbered(300, validation_size=100)
    noisy = prepare(source, seed=2, label_noise=0.4)
    assert torch.equal(noisy.clean, source.pool.y[members(noisy.val)])
    assert int((noisy.val.y != noisy.clean).sum()) == 40
    assert prepare(source, seed=2).clean is None


def test_flips_go_to_every_other_class_about_equally_often():
    labels = torch.arange(90_000) % 10
    noisy = flip_labels(labels, torch.arange(90_000), 10, 1.0, seed=7)
    moves = torch.zeros(10, 10)
    moves.index_put_((labels, noisy), torch.ones(90_000), accumulate=True)
    assert moves.diag().sum() == 0
    others = moves[~torch.eye(10, dtype=torch.bool)]
    # 9000 of each class go to 9 others: 1000 each, with a standard deviation of about 30.
    assert others.min() > 850
    assert others.max() < 1150
    assert int(labels.sum()) == sum(range(10)) * 9000  # the original is left as it was


def test_every_sample_is_as_likely_to_flip():
    labels = torch.zeros(50, dtype=torch.long)
    counts = torch.zeros(50)
    for seed in range(400):
        counts += flip_labels(labels, torch.arange(50), 3, 0.2, seed) != labels
    # 80 flips each on average, with a standard deviation of 8.
    assert counts.min() > 48
    assert counts.max() < 112


@pytest.mark.parametrize(
    ("available", "fraction", "count"),
    [
        (55_000, 0.00125, 68),
        (55_000, 0.01, 550),
        (45_000, 0.05, 2250),
        (100, 0.29, 29),
        (1000, 1.0, 1000),
        (5, 0.01, 1),
    ],
)
def test_the_number_of_samples_is_the_papers(available, fraction, count):
    assert subset_size(available, fraction) == count


@given(st.integers(1, 60_000), st.integers(1, 100_000))
def test_the_number_of_samples_is_the_whole_part_of_the_exact_product(available, parts):
    # Floating point falls just short of some whole products, such as 0.29 * 100.
    assert subset_size(available, parts / 100_000) == max(1, available * parts // 100_000)


def test_methods_models_and_optimisers_see_the_same_subset_and_the_same_flips():
    drawn = ("data.fraction=0.3", "data.label_noise=0.4")
    others = (
        "method=xent",
        "method=margin",
        "margin.norm=inf",
        "margin.layers=input",
        "model=linear",
        "optimizer=rmsprop",
        "trainer.batch_size=7",
    )
    first = build_data(config(*drawn))
    for other in others:
        data = build_data(config(*drawn, other))
        assert data.fingerprint == first.fingerprint
        assert torch.equal(data.train.y, first.train.y)
    assert build_data(config(*drawn, "seed=1")).fingerprint != first.fingerprint
