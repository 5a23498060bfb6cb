"""What an attack climbs: cross-entropy as in the paper, or the logit margin, which does not saturate."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

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
