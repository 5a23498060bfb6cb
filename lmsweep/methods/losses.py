"""Losses on the logits: margins at the output, and against wrong labels in place of cross-entropy."""

import math
from typing import Annotated, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lmsweep.methods.method import Method, NonNegative, Positive, Step, Unit, linear_layers


class Hinge(Method):
    """The paper's second baseline: how far the best other class comes within 1 of the target's logit."""

    name: ClassVar[str] = "hinge"

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        true = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
        other = logits.scatter(1, targets.unsqueeze(1), float("-inf")).amax(1)
        return (1 - true + other).clamp_min(0).mean()


class OutputMargin(Method):
    """Cross-entropy and the squared shortfall from 1 of the target's lead in probability (Sun et al., 2015).

    With p = softmax(logits): (1 - (p_y - max_k p_k))^2 over the nearest other class, or the mean over all
    other classes k of (1 - (p_y - p_k))^2.
    """

    name: ClassVar[str] = "output_margin"
    weight: Positive
    over: Annotated[Literal["nearest", "all"], Field(description="nearest or all")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        p = logits.softmax(1)
        column = targets.unsqueeze(1)
        gap = 1 - (p.gather(1, column) - p)
        if self.over == "nearest":
            return self.weight * gap.scatter(1, column, -torch.inf).amax(1).square().mean()
        return self.weight * gap.square().scatter(1, column, 0.0).sum(1).div(logits.shape[1] - 1).mean()


class SoftMargin(Method):
    """Cross-entropy of logits whose true one is lowered by `margin` (Liang et al., 2017)."""

    name: ClassVar[str] = "soft_margin"
    margin: Positive

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits - self.margin * F.one_hot(targets, logits.shape[1]), targets)


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
    """Large-margin softmax (Liu et al., 2016): the true class has to win at m times its angle.

    The term is what the margin adds to the cross-entropy of the plain logits.
    """

    name: ClassVar[str] = "liu"
    features: ClassVar[bool] = True
    m: Annotated[int, Field(ge=1, le=8, description="a whole number from 1 to 8")]
    easing: NonNegative

    def term(self, step: Step) -> Tensor:
        weight = linear_layers(step.network)[-1].weight
        features = cast(Tensor, step.features)
        kind = torch.promote_types(step.logits.dtype, torch.float32)
        logits, features, weight = (value.to(kind) for value in (step.logits, features, weight))
        changed = large_margin_logits(logits, step.y, features, weight, self.m, self.easing)
        return F.cross_entropy(changed, step.y) - F.cross_entropy(logits, step.y)


class Bootstrapping(Method):
    """Cross-entropy with beta * label + (1 - beta) * own answer in place of the label (Reed et al., 2014).

    The answer q is the softmax (soft), which adds the entropy of q, or the class with the highest score
    (hard), which is a constant.
    """

    name: ClassVar[str] = "bootstrapping"
    beta: Unit
    kind: Annotated[Literal["soft", "hard"], Field(description="soft or hard")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_q = logits.log_softmax(1)
        soft = self.kind == "soft"
        own = -(log_q.exp() * log_q).sum(1).mean() if soft else F.nll_loss(log_q, logits.argmax(1))
        return self.beta * F.nll_loss(log_q, targets) + (1 - self.beta) * own


class GeneralisedCrossEntropy(Method):
    """(1 - p_y^q) / q (Zhang and Sabuncu, 2018): cross-entropy as q goes to 0, the absolute error at q = 1.

    Samples that the network finds unlikely push less than in cross-entropy. The power is taken of
    log-probabilities, whose gradient stays finite where p_y underflows.
    """

    name: ClassVar[str] = "gce"
    q: Annotated[float, Field(gt=0, le=1, description="a number in (0, 1]")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = -F.cross_entropy(logits, targets, reduction="none")
        return (1 - (self.q * log_p).exp()).mean() / self.q


class SymmetricCrossEntropy(Method):
    """alpha * H(label, p) + beta * H(p, label), where log 0 is `log_zero` (Wang et al., 2019).

    The second, reversed cross-entropy is -log_zero * (1 - p_y), because the label has one class only.
    """

    name: ClassVar[str] = "sce"
    alpha: NonNegative
    beta: NonNegative
    log_zero: Annotated[float, Field(lt=0, description="a number < 0")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = -F.cross_entropy(logits, targets, reduction="none")
        return -self.alpha * log_p.mean() + self.beta * self.log_zero * log_p.expm1().mean()
