"""Standardisation inside a network: torchvision's numbers, no parameters, gradients in pixels."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.transforms.v2 import functional as V

from lmsweep.models import common
from lmsweep.models.common import ImageBlock, ImageConv2d, Standardise

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


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 1)])
def test_the_fast_gradient_at_an_image_is_that_of_the_convolution_once_and_twice(bias, kernel, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(common, "NUMBERS_AT_ONCE", 2 * 5 * 4 * kernel[0] * kernel[1])  # of three images
    fast = ImageConv2d(1, 3, kernel, padding="same", bias=bias).double()
    plain = nn.Conv2d(1, 3, kernel, padding="same", bias=bias).double()
    plain.load_state_dict(fast.state_dict())
    x = torch.rand(3, 1, 5, 4, dtype=torch.float64, requires_grad=True)

    for ours, theirs in zip(outcome(fast, x), outcome(plain, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert torch.equal(fast(x.detach()), plain(x.detach()))


def outcome(layer: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The gradient at the image, and what the weights and the image do to its length."""
    y = F.relu(layer(x), inplace=True).square()
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    everything = [x, *layer.parameters()]
    return [y, first, *torch.autograd.grad(first.norm() + y.sum(), everything)]


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_through_pooling_the_gradient_at_an_image_is_that_of_the_layers_once_and_twice(order, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(common, "NUMBERS_AT_ONCE", 2 * 6 * 7 * 9)  # of five images
    together = ImageBlock(ImageConv2d(1, 3, 3, padding="same"), nn.MaxPool2d(2), nn.LeakyReLU())
    together = together.double().to(memory_format=order)
    plain = nn.Sequential(nn.Conv2d(1, 3, 3, padding="same"), nn.MaxPool2d(2), nn.LeakyReLU()).double()
    plain.load_state_dict(together.state_dict())
    x = torch.rand(5, 1, 6, 7, dtype=torch.float64, requires_grad=True)
    for ours, theirs in zip(outcome(together, x), outcome(plain, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_who_looks_inside_a_block_of_images_finds_the_layers_gradient():
    torch.manual_seed(0)
    block = ImageBlock(ImageConv2d(1, 3, 3, padding="same"), nn.MaxPool2d(2)).requires_grad_(False)
    seen = []
    block[0].register_forward_hook(lambda _, __, output: seen.append(output))
    x = torch.rand(2, 1, 4, 4, requires_grad=True)
    y = block(x)
    inside, at_image = torch.autograd.grad(y.sum(), [seen[0], x])
    assert torch.equal(inside.sum(), torch.tensor(float(y.numel())))
    torch.testing.assert_close(at_image, torch.autograd.grad(block[0](x), x, inside)[0])


@pytest.mark.parametrize("pool", [False, True])
def test_a_backward_pass_for_weights_makes_no_gradient_at_images(pool, monkeypatch):
    made = []
    fold = F.fold
    monkeypatch.setattr(F, "fold", lambda *arguments, **keys: made.append(1) or fold(*arguments, **keys))
    layers = [ImageConv2d(1, 3, 3, padding="same"), nn.MaxPool2d(2), nn.ReLU(inplace=True)]
    block = ImageBlock(*layers) if pool else layers[0]
    x = torch.rand(2, 1, 4, 4, requires_grad=True)
    loss = block(x).square().sum()
    loss.backward(inputs=list(block.parameters()), retain_graph=True)
    assert not made
    loss.backward()
    assert made
    assert x.grad is not None
