"""The dense networks."""

import torch

from lmsweep.margin.layers import resolve_layers
from lmsweep.models import MLP, Linear
from tests.models.activations import parameters, shapes


def test_the_toy_network_has_four_layers():
    model = MLP((2,), 2, hidden=[64, 64, 64])
    assert shapes(model, torch.rand(5, 2)) == {"fc1": (64,), "fc2": (64,), "fc3": (64,), "output": (2,)}
    assert parameters(model) == 3 * 64 + 2 * 65 * 64 + 65 * 2


def test_it_takes_images_and_computes_what_it_says():
    torch.manual_seed(0)
    model = MLP((1, 4, 4), 3, hidden=[7], input_mean=[0.5], input_std=[2.0])
    x = torch.rand(6, 1, 4, 4)
    (_, first, *_), out = model.fc1, model.out
    hidden = (((x.flatten(1) - 0.5) / 2) @ first.weight.T + first.bias).relu()
    torch.testing.assert_close(model(x), hidden @ out.weight.T + out.bias)


def test_the_linear_classifier_is_linear_and_has_no_hidden_layer():
    model = Linear((3, 4, 4), 10)
    assert shapes(model, torch.rand(2, 3, 4, 4)) == {"output": (10,)}
    assert parameters(model) == 49 * 10
    x, y = torch.rand(2, 5, 3, 4, 4)
    torch.testing.assert_close(model(0.3 * x + 0.7 * y), 0.3 * model(x) + 0.7 * model(y))
    assert resolve_layers(model, "all") == ["output"]
    assert resolve_layers(model, "everything") == ["input", "output"]
