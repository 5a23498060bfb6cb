"""Gradients with respect to the input."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmsweep.attacks.losses import AttackLoss, attack_loss


class InputGradient(NamedTuple):
    """The gradient of the attack's loss, and the logits of the same forward pass."""

    gradient: Tensor
    logits: Tensor


def input_gradient(model: nn.Module, x: Tensor, labels: Tensor, loss: AttackLoss) -> InputGradient:
    """Differentiate the attack's loss with respect to each sample; call it inside `frozen`.

    A network that cuts the graph somewhere (a rounding, an argmax) has gradient zero, as it has in theory.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(x)
        if not logits.requires_grad:
            return InputGradient(torch.zeros_like(x), logits)
        total = attack_loss(logits, labels, loss).sum()
        (gradient,) = torch.autograd.grad(total, x)
    return InputGradient(gradient, logits.detach())


def is_zero(gradient: Tensor) -> Tensor:
    """Which samples have a gradient that is exactly zero in every pixel: its sign moves them nowhere."""
    return (gradient == 0).flatten(1).all(1)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Shape one value per sample so that it broadcasts over the pixels of `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))
