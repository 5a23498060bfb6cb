"""What every network of ours promises, checked on one batch."""

import torch
from torch import nn

from lmsweep.margin.layers import capture, hidden_layers


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def shapes(model: nn.Module, x: torch.Tensor) -> dict[str, tuple[int, ...]]:
    """The shape of each hidden layer's output and of the logits, without the batch."""
    names = hidden_layers(model)
    with capture(model, names) as captured:
        model.eval()(x)
    assert list(captured.layers) == names  # they ran in the order they are named in
    found = {name: tuple(value.shape[1:]) for name, value in captured.layers.items()}
    return found | {"output": tuple(captured.logits.shape[1:])}
