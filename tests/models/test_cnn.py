"""The MNIST networks: sizes by hand, layers in order, and the released code's choices."""

import math

import pytest
import torch
import torch.nn.functional as F

from lmsweep.models import ConvNet, ReleasedConvNet
from tests.models.activations import parameters, shapes

PAPER = {"channels": [32, 64], "dense": [512, 512], "kernel_size": 5, "pool": [2, 2]}
RELEASED = PAPER | {"dense": [512]}
DIGITS = {"channels": [1, 2], "dense": [4, 4], "kernel_size": 3, "pool": [1, 2], "width": 16}
MNIST = (1, 28, 28)


def test_the_papers_network_has_its_layers():
    model = ConvNet(MNIST, 10, **PAPER)
    assert shapes(model, torch.rand(2, *MNIST)) == {
        "conv1": (32, 14, 14),
        "conv2": (64, 7, 7),
        "fc1": (512,),
        "fc2": (512,),
        "output": (10,),
    }
    convolutions = (25 + 1) * 32 + (25 * 32 + 1) * 64
    dense = (7 * 7 * 64 + 1) * 512 + (512 + 1) * 512 + (512 + 1) * 10
    assert parameters(model) == convolutions + dense == 1_926_026


def test_it_computes_what_it_says():
    torch.manual_seed(0)
    model = ConvNet((3, 12, 12), 4, channels=[2], dense=[5], kernel_size=5, pool=[2], dropout=0.5).eval()
    x = torch.rand(3, 3, 12, 12)
    convolution, (linear, out) = model.conv1[0], (model.fc1[1], model.out)
    hidden = torch.conv2d(F.pad(x, [2] * 4), convolution.weight, convolution.bias).relu()
    hidden = hidden.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1)).flatten(1)
    expected = ((hidden @ linear.weight.T + linear.bias).relu()) @ out.weight.T + out.bias
    torch.testing.assert_close(model(x), expected)


def test_pooling_before_relu_in_place_changes_no_bit_of_values_or_gradients():
    torch.manual_seed(0)
    model = ConvNet(MNIST, 10, **PAPER, width=0.25)
    x = torch.rand(8, *MNIST)

    def outcome(y: torch.Tensor) -> list[torch.Tensor]:
        return [y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))]

    def as_written(x: torch.Tensor) -> torch.Tensor:
        for layer in (model.conv1, model.conv2):
            x = F.max_pool2d(F.relu(layer[0](x)), 2)
        for layer in (model.fc1, model.fc2):
            x = F.relu(layer[1](x.flatten(1)))
        return model.out(x)

    assert all(torch.equal(a, b) for a, b in zip(outcome(model(x)), outcome(as_written(x)), strict=True))


@pytest.mark.parametrize(
    ("width", "units"), [(0.5, (16, 32, 256)), (0.25, (8, 16, 128)), (2, (64, 128, 1024))]
)
def test_width_scales_every_layer(width, units):
    found = shapes(ConvNet(MNIST, 10, **PAPER, width=width), torch.rand(1, *MNIST))
    assert (found["conv1"][0], found["conv2"][0], found["fc1"][0]) == units
    assert found["fc1"] == found["fc2"]


def test_the_network_for_digits_is_the_same_in_small():
    model = ConvNet((1, 8, 8), 10, **DIGITS)
    assert shapes(model, torch.rand(2, 1, 8, 8)) == {
        "conv1": (16, 8, 8),
        "conv2": (32, 4, 4),
        "fc1": (64,),
        "fc2": (64,),
        "output": (10,),
    }


def test_dropout_acts_on_the_dense_layers_in_training_only():
    model = ConvNet(MNIST, 10, **PAPER, dropout=0.2).train()
    x = torch.rand(8, *MNIST)
    assert torch.equal(model.conv2(model.conv1(x)), model.conv2(model.conv1(x)))
    dropped = model.fc1(torch.ones(64, 3136))
    zero_anyway = (model.fc1[1](torch.ones(1, 3136)) <= 0).expand_as(dropped)
    assert (dropped[~zero_anyway] == 0).float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert torch.equal(model.eval()(x), model(x))


def test_the_released_network_normalises_pooled_convolutions_and_has_one_dense_layer():
    model = ReleasedConvNet(MNIST, 10, **RELEASED)
    assert shapes(model, torch.rand(2, *MNIST)) == {
        "conv1": (32, 14, 14),
        "conv2": (64, 7, 7),
        "fc1": (512,),
        "output": (10,),
    }
    convolutions = 25 * 32 + 2 * 32 + 25 * 32 * 64 + 2 * 64
    assert parameters(model) == convolutions + (7 * 7 * 64 + 1) * 512 + (512 + 1) * 10 == 1_663_466


def test_the_released_networks_batch_norm_comes_last_and_moves_by_a_tenth():
    model = ReleasedConvNet(MNIST, 10, **RELEASED).train()
    x = torch.rand(16, *MNIST)
    out = model.conv1(x)
    pooled = F.max_pool2d(F.conv2d(x, model.conv1[0].weight, padding=2).relu(), 2)
    torch.testing.assert_close(out, F.batch_norm(pooled, None, None, training=True, eps=1e-5))
    torch.testing.assert_close(model.conv1[-1].running_mean, 0.1 * pooled.mean((0, 2, 3)))


def test_the_released_network_starts_as_tensorflow_does():
    torch.manual_seed(0)
    model = ReleasedConvNet(MNIST, 10, **RELEASED)
    for layer in (model.conv2[0], model.fc1[1], model.out):
        receptive = layer.weight[0, 0].numel() if layer.weight.ndim == 4 else 1
        fans = receptive * sum(layer.weight.shape[:2])
        bound = math.sqrt(6 / fans)
        assert bound * 0.99 < layer.weight.abs().max() <= bound
        assert layer.weight.var().item() == pytest.approx(bound**2 / 3, rel=0.05)
    assert model.conv1[0].bias is None
    assert not model.fc1[1].bias.any()
    assert not model.out.bias.any()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="width=-1 is not allowed"):
        ConvNet(MNIST, 10, **PAPER, width=-1)
    with pytest.raises(ValueError, match="pool has 1"):
        ConvNet(MNIST, 10, **(PAPER | {"pool": [2]}))
