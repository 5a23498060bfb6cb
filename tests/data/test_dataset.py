"""Splits in memory, and what of a data set counts for a run's identity."""

import pytest
import torch

from lmsweep.data import Split
from tests.config.test_run import identity


def test_a_split_selects_samples_and_takes_other_labels():
    split = Split(torch.arange(12).view(6, 2), torch.arange(6))
    chosen = split.select(torch.tensor([4, 1]))
    assert chosen.x.tolist() == [[8, 9], [2, 3]]
    assert chosen.y.tolist() == [4, 1]
    assert split.select(torch.tensor([4, 1]), torch.tensor([0, 0])).y.tolist() == [0, 0]
    assert split.y.tolist() == list(range(6))
    assert (len(chosen), chosen.input_shape) == (2, (2,))


def test_reading_gives_the_samples_asked_for():
    split = Split(torch.arange(5).float(), torch.arange(5))
    batches = list(split.to("cpu").read([torch.tensor([3, 0]), slice(1, 3)]))
    assert [x.tolist() for x, _ in batches] == [[3, 0], [1, 2]]
    assert [y.tolist() for _, y in batches] == [[3, 0], [1, 2]]


@pytest.mark.parametrize("same", ["data.root=elsewhere", "data.workers=0", "data.augment.flip=false"])
def test_where_data_lies_and_who_reads_it_do_not_make_another_run(same):
    assert identity(same) == identity()


@pytest.mark.parametrize(
    "other", ["data.augment.flip=true", "data.augment.pad=1", "data.augment.hue=0.1", "data=toy"]
)
def test_what_a_network_sees_makes_another_run(other):
    assert identity(other) != identity()
