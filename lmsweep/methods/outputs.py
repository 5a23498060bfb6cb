"""Large margins at the outputs: the hinge, Sun et al., the angles of Liu et al., Liang et al."""

import math
from typing import Annotated, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lmsweep.methods.method import Method, NonNegative, Positive, Step, linear_layers


def hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """Multi-class hinge: how far the best other class comes within 1 of the target's logit."""
    true = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    other = logits.scatter(1, targets.unsqueeze(1), float("-inf")).amax(1)
    return (1 - true + other).clamp_min(0).mean()


class Hinge(Method):
    """The paper's second baseline."""

    name: ClassVar[str] = "hinge"

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The hinge."""
        return hinge(logits, targets)


def output_margin(logits: Tensor, targets: Tensor, over: Literal["nearest", "all"]) -> Tensor:
    """Squared shortfall from 1 of the target's probability above others (Sun et al., 2015).

    With p = softmax(logits): (1 - (p_y - max_k p_k))^2 over the nearest other class, or the mean over all
    other classes k of (1 - (p_y - p_k))^2.
    """
    p = logits.softmax(1)
    column = targets.unsqueeze(1)
    gap = 1 - (p.gather(1, column) - p)
    if over == "nearest":
        return gap.scatter(1, column, -torch.inf).amax(1).square().mean()
    return gap.square().scatter(1, column, 0.0).sum(1).div(logits.shape[1] - 1).mean()


class OutputMargin(Method):
    """Cross-entropy and a weighted margin term on the probabilities."""

    name: ClassVar[str] = "output_margin"
    weight: Positive
    over: Annotated[Literal["nearest", "all"], Field(description="nearest or all")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The margin term."""
        return self.weight * output_margin(logits, targets, self.over)


def soft_margin(logits: Tensor, targets: Tensor, margin: float) -> Tensor:
    """Cross-entropy of logits whose true one is lowered by `margin` (Liang et al., 2017)."""
    return F.cross_entropy(logits - margin * F.one_hot(targets, logits.shape[1]), targets)


class SoftMargin(Method):
    """Soft-margin softmax in place of cross-entropy."""

    name: ClassVar[str] = "soft_margin"
    margin: Positive

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss."""
        return soft_margin(logits, targets, self.margin)


def angular_margin(cosine: Tensor, m: int) -> Tensor:
    """psi of Liu et al. (2016): (-1)^k cos(m theta) - 2k for theta between k pi / m and (k + 1) pi / m.

    It falls from 1 at theta = 0 to 1 - 2m at pi, and lies below cos(theta) between.
    """
    k = sum((cosine <= math.cos(j * math.pi / m)).to(cosine.dtype) for j in range(1, m))
    before, now = torch.ones_like(cosine), cosine
    for _ in range(m - 1):  # cos(m theta) is Chebyshev's polynomial of cos(theta)
        before, now = now, 2 * cosine * now - before
    return (1 - 2 * (k % 2)) * now - 2 * k


def large_margin_logits(
    logits: Tensor, targets: Tensor, features: Tensor, weight: Tensor, m: int, easing: float
) -> Tensor:
    """Logits whose true one, |w| |x| cos(theta), became |w| |x| (easing * cos(theta) + psi) / (1 + easing).

    A bias of the last layer stays what it is: it belongs to no angle.
    """
    rows = weight[targets]
    size = rows.norm(dim=1) * features.norm(dim=1)
    straight = (rows * features).sum(1)
    cosine = (straight / size.clamp_min(torch.finfo(size.dtype).tiny)).clamp(-1, 1)
    change = (size * angular_margin(cosine, m) - straight) / (1 + easing)
    return logits + change.unsqueeze(1) * F.one_hot(targets, logits.shape[1])


class Liu(Method):
    """Large-margin softmax (Liu et al., 2016): the true class has to win at m times its angle."""

    name: ClassVar[str] = "liu"
    features: ClassVar[bool] = True
    m: Annotated[int, Field(ge=1, le=8, description="a whole number from 1 to 8")]
    easing: NonNegative

    def term(self, step: Step) -> Tensor:
        """What the margin adds to the cross-entropy of the plain logits."""
        weight = linear_layers(step.network)[-1].weight
        features = cast(Tensor, step.features)
        kind = torch.promote_types(step.logits.dtype, torch.float32)
        logits, features, weight = (value.to(kind) for value in (step.logits, features, weight))
        changed = large_margin_logits(logits, step.y, features, weight, self.m, self.easing)
        return F.cross_entropy(changed, step.y) - F.cross_entropy(logits, step.y)
