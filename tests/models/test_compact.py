"""The compact CIFAR-10 network: its layers, its size and work, and what it refuses."""

import pytest
import torch
from torch import nn

from lmsweep.models import CompactResNet
from tests.models.activations import parameters, shapes

CIFAR = (3, 32, 32)


@pytest.mark.parametrize(("width", "channels"), [(1.0, (32, 64, 128)), (0.5, (16, 32, 64))])
def test_layers_have_the_shapes_they_are_described_with(width, channels):
    one, two, three = channels
    found = shapes(CompactResNet(CIFAR, 10, width=width), torch.rand(2, *CIFAR))
    assert found == {
        "conv1": (one, 16, 16),
        "conv2": (two, 8, 8),
        "block": (two, 8, 8),
        "conv3": (three,),
        "output": (10,),
    }


def test_parameters_and_multiply_adds_are_those_of_the_description():
    net = CompactResNet(CIFAR, 10)
    weights = 3 * 16 * 32 + 9 * (32 * 64 + 2 * 64**2 + 64 * 128)
    assert parameters(net) == weights + 2 * (32 + 3 * 64 + 128) + 129 * 10
    work = 0

    def count(layer: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal work
        work += layer.weight[0].numel() * output.numel()

    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    net(torch.rand(2, *CIFAR))
    assert work / 2 == pytest.approx(15e6, rel=0.05)


def test_the_block_adds_to_what_it_is_given():
    net = CompactResNet(CIFAR, 10).eval()
    x = torch.rand(2, *CIFAR)
    before = net.conv2(net.conv1(x))
    block = net.block
    torch.testing.assert_close(block(before) - before, block.residual(before), atol=1e-5, rtol=1e-4)
    assert (block(before) >= before).all()  # what is added has passed a ReLU


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (CIFAR, {"width": 0}, "width"),
        (CIFAR, {"channels": [8, 8]}, "2 numbers for the three convolutions"),
        ((1, 7, 8), {}, "7x8 are smaller than 8x8"),
    ],
)
def test_what_does_not_fit_is_named(shape, options, message):
    with pytest.raises(ValueError, match=message):
        CompactResNet(shape, 10, **options)
