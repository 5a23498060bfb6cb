"""Standardisation inside a network: torchvision's numbers, no parameters, gradients in pixels."""

import pytest
import torch
from torchvision.transforms.v2 import functional as V

from lmsweep.models.common import Standardise

MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]


def test_it_is_torchvisions_normalize():
    x = torch.rand(4, 3, 5, 5)
    torch.testing.assert_close(Standardise(3, MEAN, STD)(x), V.normalize(x, MEAN, STD))


def test_gradients_are_in_pixels():
    x = torch.rand(1, 3, 2, 2, requires_grad=True)
    Standardise(3, MEAN, STD)(x).sum().backward()
    torch.testing.assert_close(x.grad[0, :, 0, 0], 1 / torch.tensor(STD))


def test_nothing_is_trained_or_saved_and_devices_and_types_follow():
    layer = Standardise(3, MEAN, STD)
    assert not list(layer.parameters())
    assert not layer.state_dict()
    assert layer.double()(torch.rand(1, 3, 2, 2, dtype=torch.float64)).dtype == torch.float64


def test_without_numbers_it_leaves_everything_alone():
    x = torch.rand(4, 2)
    assert Standardise(2)(x) is x
    assert torch.equal(Standardise(2, mean=[1.0, 2.0])(x), x - torch.tensor([1.0, 2.0]))


def test_numbers_must_be_one_per_channel():
    with pytest.raises(ValueError, match=r"data\.mean has 3 values for 1 channels"):
        Standardise(1, MEAN, STD)
