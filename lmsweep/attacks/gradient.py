"""What an attack climbs, and its gradient with respect to the input.

Attacks climb cross-entropy as in the paper, or the logit margin, which does not saturate.
"""

from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

AttackLoss = Literal["xent", "margin"]


def attack_loss(logits: Tensor, labels: Tensor, loss: AttackLoss) -> Tensor:
    """Return one value per sample that grows as the network moves away from `labels`.

    In float32 the gradient of cross-entropy is exactly zero once the other classes' probabilities
    underflow, about 104 below in logits, and its sign then moves nothing. The logit margin (best other
    class minus the label's, as in Carlini & Wagner, 2017) has a gradient wherever the network has one.
    """
    precise = logits if logits.dtype == torch.float64 else logits.float()
    if loss == "xent":
        return F.cross_entropy(precise, labels, reduction="none")
    if loss == "margin":
        return logit_margin(precise, labels)
    raise ValueError(f"loss={loss!r} is not allowed: it must be one of {', '.join(get_args(AttackLoss))}")


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Best other logit minus the label's: positive where the network does not answer with the label."""
    column = labels.unsqueeze(1)
    other = logits.scatter(1, column, -torch.inf).amax(1)
    return other - logits.gather(1, column).squeeze(1)


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
