"""Changes of an object or a network that are undone when a block ends, also by an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def replaced(owner: object, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of this object only, and afterwards leave the object as it was."""
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, `model` is in evaluation mode.

    Modes are restored per module, because a network may hold parts in evaluation mode while it trains.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Inside, `model` is in evaluation mode and its parameters need no gradients."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    with evaluating(model):
        try:
            for parameter, _ in flags:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter, flag in flags:
                parameter.requires_grad_(flag)
