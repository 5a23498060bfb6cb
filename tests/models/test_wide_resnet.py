"""Wide residual networks: published sizes, the paper's count of convolutions, and pre-activation."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmsweep.margin.layers import resolve_layers
from lmsweep.models import WideResNet
from lmsweep.models.residual import ResidualUnit
from tests.models.activations import parameters, shapes

CIFAR = (3, 32, 32)


def on_paper(depth: int, width: int, num_classes: int = 10) -> WideResNet:
    """A network without memory for its weights."""
    with torch.device("meta"):
        return WideResNet(CIFAR, num_classes, depth=depth, width=width)


# Of the CIFAR networks in Zagoruyko & Komodakis, table 5 (36.5M, 8.9M, 2.2M, 11.0M, 2.7M), exact.
@pytest.mark.parametrize(
    ("depth", "width", "count"),
    [(28, 10, 36_479_194), (40, 4, 8_949_210), (40, 2, 2_243_546), (16, 8, 10_961_370), (16, 4, 2_748_890)],
)
def test_parameters_are_the_published_ones(depth, width, count):
    assert parameters(on_paper(depth, width)) == count


def by_hand(depth: int, width: int, num_classes: int) -> int:
    units, channels = (depth - 4) // 6, [16, 16 * width, 32 * width, 64 * width]
    total = 3 * 9 * 16
    for before, after in pairwise(channels):
        first = 2 * before + 9 * before * after + 2 * after + 9 * after**2
        shortcut = before * after if before != after else 0
        total += first + shortcut + (units - 1) * (4 * after + 18 * after**2)
    return total + 2 * channels[-1] + (channels[-1] + 1) * num_classes


@pytest.mark.parametrize(
    ("depth", "width", "classes"), [(58, 10, 10), (40, 10, 10), (10, 1, 10), (16, 3, 100)]
)
def test_parameters_follow_from_depth_and_width(depth, width, classes):
    assert parameters(on_paper(depth, width, classes)) == by_hand(depth, width, classes)


def test_the_papers_network_has_58_convolutions():
    model = on_paper(58, 10)
    convolutions = {name: m for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    in_blocks = [m for name, m in convolutions.items() if ".conv" in name]
    shortcuts = [m for name, m in convolutions.items() if "shortcut" in name]
    assert (len(convolutions), len(in_blocks), len(shortcuts)) == (58, 54, 3)
    assert all(m.kernel_size == (3, 3) for m in in_blocks)
    assert all(m.kernel_size == (1, 1) for m in shortcuts)
    assert (model.conv1.kernel_size, model.conv1.out_channels) == ((3, 3), 16)
    assert [len(model.get_submodule(f"block{group}")) for group in (1, 2, 3)] == [9, 9, 9]


def test_layer_sets_read_naturally():
    model = on_paper(58, 10)
    assert len(model.layer_names) == 28
    assert resolve_layers(model, "block1.*") == [f"block1.{unit}" for unit in range(9)]
    assert resolve_layers(model, "block1.3") == ["block1.3"]
    five = resolve_layers(model, "even:5")
    assert (five[0], five[-1], len(five)) == ("input", "output", 5)
    assert [name.split(".")[0] for name in five[1:-1]] == ["block1", "block2", "block3"]


@pytest.mark.parametrize("shape", [CIFAR, (1, 8, 8)])
def test_maps_halve_twice(shape):
    model = WideResNet(shape, 7, depth=10, width=2)
    side = shape[1]
    assert shapes(model, torch.rand(2, *shape)) == {
        "conv1": (16, side, side),
        "block1.0": (32, side, side),
        "block2.0": (64, side // 2, side // 2),
        "block3.0": (128, side // 4, side // 4),
        "output": (7,),
    }


def test_a_stride_halves_every_map():
    model = WideResNet(CIFAR, 10, depth=10, width=1, stride=2)
    assert shapes(model, torch.rand(2, *CIFAR)) == {
        "conv1": (16, 16, 16),
        "block1.0": (16, 16, 16),
        "block2.0": (32, 8, 8),
        "block3.0": (64, 4, 4),
        "output": (10,),
    }


def test_a_unit_passes_its_input_on_and_adds_to_it():
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5, 5)
    unit = ResidualUnit(6, 6, 1, 0.0).eval()
    nn.init.zeros_(unit.conv2.weight)
    assert torch.equal(unit(x), x)  # nothing stands between input and output, not even a ReLU
    wider = ResidualUnit(6, 8, 2, 0.0).eval()
    nn.init.zeros_(wider.conv2.weight)
    expected = F.conv2d(wider.norm1(x).relu(), wider.shortcut.weight, stride=2)
    assert torch.equal(wider(x), expected)


def test_signals_keep_their_size_through_the_depth():
    torch.manual_seed(0)
    model = WideResNet(CIFAR, 10, depth=40, width=1).train()
    logits = model(torch.rand(16, *CIFAR))
    assert 0.05 < logits.std() < 5


def test_dropout_acts_in_training_only():
    model = WideResNet(CIFAR, 10, depth=10, width=1, dropout=0.3)
    x = torch.rand(2, *CIFAR)
    assert not torch.equal(model.train()(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


def test_pixels_are_standardised_inside():
    torch.manual_seed(0)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    model = WideResNet(CIFAR, 10, depth=10, width=1, input_mean=mean, input_std=std).eval()
    plain = WideResNet(CIFAR, 10, depth=10, width=1).eval()
    plain.load_state_dict(model.state_dict())
    x = torch.rand(2, *CIFAR)
    channels = (1, 3, 1, 1)
    expected = plain((x - torch.tensor(mean).view(channels)) / torch.tensor(std).view(channels))
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("depth", "width", "stride", "named"),
    [(57, 10, 1, "6n"), (4, 1, 1, "6n"), (28, 0, 1, "width"), (28, 1, 0, "stride")],
)
def test_sizes_that_cannot_be_are_refused(depth, width, stride, named):
    with pytest.raises(ValueError, match=named):
        WideResNet(CIFAR, 10, depth=depth, width=width, stride=stride)
