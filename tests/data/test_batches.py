"""Batches: every sample once per epoch, and batch n the same however training came to it."""

from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmsweep.data import Augmentation, EvaluationBatches, Split, TrainingBatches
from lmsweep.seeds import Share


def numbered(size: int) -> Split:
    return Split(torch.arange(size).view(-1, 1).float(), torch.arange(size) % 7)


@given(st.integers(1, 60), st.integers(1, 25), st.integers(0, 1000))
@settings(max_examples=80)
def test_every_sample_comes_once_per_epoch_and_every_batch_is_full(size, batch, seed):
    epochs = 3
    stream = TrainingBatches(numbered(size), batch, seed=seed)
    batches = list(islice(stream, -(-epochs * size // batch)))
    assert all(len(x) == len(y) == batch for x, y in batches)
    drawn = torch.cat([x.flatten() for x, _ in batches]).long()
    for epoch in range(epochs):
        assert sorted(drawn[epoch * size : (epoch + 1) * size].tolist()) == list(range(size))
    assert all(torch.equal(y, x.flatten().long() % 7) for x, y in batches)


@given(st.integers(2, 40), st.integers(1, 25), st.integers(0, 12), st.integers(0, 100))
@settings(max_examples=60)
def test_a_stream_goes_on_where_another_stopped(size, batch, start, seed):
    whole = list(islice(TrainingBatches(numbered(size), batch, seed=seed), start + 4))
    rest = list(islice(TrainingBatches(numbered(size), batch, seed=seed, start=start), 4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[start:], rest, strict=True))


def test_epochs_and_seeds_have_orders_of_their_own():
    first, second = islice(TrainingBatches(numbered(50), 50, seed=0), 2)
    other = next(iter(TrainingBatches(numbered(50), 50, seed=1)))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[0], other[0])


def test_augmented_batches_depend_on_their_number_and_the_seed_only():
    images = torch.randint(
        0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    split = Split(images, torch.arange(40))
    augment = Augmentation(pad=2, flip=True, contrast=0.3, hue=0.1)
    whole = list(islice(TrainingBatches(split, 16, seed=4, augment=augment), 8))
    torch.rand(5)  # a draw elsewhere must not matter
    rest = list(islice(TrainingBatches(split, 16, seed=4, start=5, augment=augment), 3))
    for (x, y), (x_again, y_again) in zip(whole[5:], rest, strict=True):
        assert torch.equal(x, x_again)
        assert torch.equal(y, y_again)
    plain = list(islice(TrainingBatches(split, 16, seed=4), 8))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(whole, plain, strict=True))
    assert not torch.equal(whole[0][0], plain[0][0])


def test_a_stream_leaves_the_global_generator_to_dropout():
    split = Split(torch.rand(20, 3, 8, 8), torch.arange(20))
    before = torch.get_rng_state()
    list(islice(TrainingBatches(split, 8, seed=0, augment=Augmentation(pad=1, flip=True, hue=0.1)), 5))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("size", "batch"), [(10, 4), (12, 4), (3, 10)])
def test_evaluation_sees_every_sample_once_in_order(size, batch):
    batches = EvaluationBatches(numbered(size), batch)
    assert torch.cat([x.flatten() for x, _ in batches]).tolist() == list(range(size))
    assert len(list(batches)) == len(batches) == -(-size // batch)


def test_bytes_become_pixels_and_stay_bytes_in_memory():
    split = Split(torch.tensor([[0, 51, 255]], dtype=torch.uint8), torch.tensor([1]))
    ((x, _),) = EvaluationBatches(split, 5)
    assert torch.equal(x, torch.tensor([[0.0, 0.2, 1.0]]))
    assert split.x.dtype == torch.uint8
    x_again, _ = next(iter(TrainingBatches(split, 1, seed=0)))
    assert torch.equal(x_again, x)


def test_shares_of_a_batch_are_the_batch():
    """With all that is drawn per batch, and from the middle of the stream on."""
    split = Split(torch.rand(50, 3, 6, 6), torch.arange(50))
    augment = Augmentation(pad=1, flip=True, brightness=0.2, hue=0.1)
    options = {"seed": 3, "start": 5, "augment": augment}
    whole = TrainingBatches(split, 12, **options)
    shares = [TrainingBatches(split, 12, **options, share=Share(rank, 3)) for rank in range(3)]
    for (x, y), *parts, _ in zip(whole, *shares, range(9)):  # noqa: B905 - the streams have no end
        for rank, (part, labels) in enumerate(parts):
            assert torch.equal(labels, y[rank::3])
            assert torch.equal(part, x[rank::3])
    with pytest.raises(ValueError, match="a batch of 10 cannot be shared evenly by 3 processes"):
        TrainingBatches(split, 10, seed=0, share=Share(0, 3))


@pytest.mark.parametrize("count", [2, 3, 4, 10, 23])
@pytest.mark.parametrize("size", [2, 4, 100])
def test_processes_evaluate_every_sample_once_in_equally_many_batches(count, size):
    split = Split(torch.rand(count, 1), torch.arange(count))
    batches = [EvaluationBatches(split, size, Share(rank, 3)) for rank in range(3)]
    seen = [[y.tolist() for _, y in part] for part in batches]
    assert len({len(part) for part in seen}) == len({len(part) for part in batches}) == 1
    assert all(0 < len(labels) <= size + 1 for part in seen for labels in part)
    flat = [label for part in seen for labels in part for label in labels]
    assert sorted(flat) == sorted(list(range(count)) * (3 if count < 3 else 1))
