"""Layer sets by name, on networks that name their layers and on others that do not."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from lmsweep.margin.layers import capture, compiled_around, hidden_layers, resolve_layers


class Named(nn.Module):
    layer_names = ("conv1", "block.0", "block.1", "block.2", "fc")

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Linear(2, 2)
        self.block = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
        self.fc = nn.Linear(2, 2)
        self.out = nn.Linear(2, 3)

    def forward(self, x):
        return self.out(self.fc(self.block(self.conv1(x))))


class Wrapper(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.criterion = nn.CrossEntropyLoss()
        self.inside = network

    def forward(self, x):
        return self.inside(x)


SETS = {
    "input": ["input"],
    "output": ["output"],
    "hidden": ["conv1", "block.0", "block.1", "block.2", "fc"],
    "all": ["conv1", "block.0", "block.1", "block.2", "fc", "output"],
    "everything": ["input", "conv1", "block.0", "block.1", "block.2", "fc", "output"],
    "block.1": ["block.1"],
    "block*": ["block.0", "block.1", "block.2"],
    "even:2": ["input", "output"],
    "even:3": ["input", "block.1", "output"],
    "even:5": ["input", "block.0", "block.1", "block.2", "output"],
    "even:7": ["input", "conv1", "block.0", "block.1", "block.2", "fc", "output"],
    "out": ["out"],
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_sets(name, wrapped):
    net = Wrapper(Wrapper(Named())) if wrapped else Named()
    assert resolve_layers(net, name) == SETS[name]


def test_lists_keep_their_order_without_repeats():
    assert resolve_layers(Named(), ["output", "fc", "block*", "fc", "input"]) == [
        "output",
        "fc",
        "block.0",
        "block.1",
        "block.2",
        "input",
    ]


@pytest.mark.parametrize("layers", ["conv9", "blok*", ["input", "conv9"]])
def test_an_unknown_name_is_an_error_that_lists_the_valid_ones(layers):
    with pytest.raises(ValueError, match=r"input, conv1, block\.0, block\.1, block\.2, fc, output"):
        resolve_layers(Named(), layers)


@pytest.mark.parametrize("layers", ["even:1", "even:8", "even:x", "even:"])
def test_an_even_set_that_does_not_fit_says_what_does(layers):
    with pytest.raises(ValueError, match="N from 2 to 7"):
        resolve_layers(Named(), layers)


def test_networks_that_do_not_name_their_layers():
    assert hidden_layers(resnet18()) == ["conv1", "layer1", "layer2", "layer3", "layer4"]
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))
    assert hidden_layers(plain) == ["1"]
    assert hidden_layers(Wrapper(plain)) == ["1"]
    assert hidden_layers(nn.Linear(2, 2)) == []


def test_what_torch_compile_hides():
    whole = torch.compile(Named(), backend="eager")
    assert resolve_layers(whole, "all") == SETS["all"]
    assert compiled_around(whole, "conv1")
    assert not compiled_around(whole, "input")
    assert not compiled_around(whole, "output")
    by_layer = Named()
    by_layer.block = torch.compile(by_layer.block, backend="eager")
    assert not compiled_around(by_layer, "conv1")
    assert not compiled_around(by_layer, "block")
    assert compiled_around(by_layer, "block.1")
    in_place = Named()
    in_place.conv1.compile(backend="eager")
    assert compiled_around(in_place, "conv1")
    assert not compiled_around(in_place, "fc")


def test_a_layer_that_is_overwritten_is_refused_rather_than_measured_wrongly():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = torch.rand(2, 3)
    with pytest.raises(ValueError, match="what follows 0 changes its output in place"), capture(net, ["0"]):
        net(x)
    with capture(net, ["1"]) as captured:
        net(x)
    assert captured.layers["1"].shape == (2, 4)
