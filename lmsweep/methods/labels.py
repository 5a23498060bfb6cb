"""Against wrong labels, in place of cross-entropy: bootstrapping, generalised and symmetric cross-entropy."""

from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lmsweep.methods.method import Method, NonNegative, Unit


def bootstrapping(logits: Tensor, targets: Tensor, beta: float, kind: Literal["soft", "hard"]) -> Tensor:
    """Cross-entropy with beta * label + (1 - beta) * own answer in place of the label (Reed et al., 2014).

    The answer q is the softmax (soft), which adds the entropy of q, or the class with the highest score
    (hard), which is a constant.
    """
    log_q = logits.log_softmax(1)
    own = -(log_q.exp() * log_q).sum(1).mean() if kind == "soft" else F.nll_loss(log_q, logits.argmax(1))
    return beta * F.nll_loss(log_q, targets) + (1 - beta) * own


class Bootstrapping(Method):
    """Labels are mixed with what the network answers."""

    name: ClassVar[str] = "bootstrapping"
    beta: Unit
    kind: Annotated[Literal["soft", "hard"], Field(description="soft or hard")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss."""
        return bootstrapping(logits, targets, self.beta, self.kind)


def generalised_cross_entropy(logits: Tensor, targets: Tensor, q: float) -> Tensor:
    """(1 - p_y^q) / q (Zhang and Sabuncu, 2018): cross-entropy as q goes to 0, the absolute error at q = 1.

    The power is taken of log-probabilities, whose gradient stays finite where p_y underflows.
    """
    log_p = -F.cross_entropy(logits, targets, reduction="none")
    return (1 - (q * log_p).exp()).mean() / q


class GeneralisedCrossEntropy(Method):
    """Samples that the network finds unlikely push less than in cross-entropy."""

    name: ClassVar[str] = "gce"
    q: Annotated[float, Field(gt=0, le=1, description="a number in (0, 1]")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss."""
        return generalised_cross_entropy(logits, targets, self.q)


def symmetric_cross_entropy(
    logits: Tensor, targets: Tensor, alpha: float, beta: float, log_zero: float
) -> Tensor:
    """alpha * H(label, p) + beta * H(p, label), where log 0 is `log_zero` (Wang et al., 2019).

    The second, reversed cross-entropy is -log_zero * (1 - p_y), because the label has one class only.
    """
    log_p = -F.cross_entropy(logits, targets, reduction="none")
    return -alpha * log_p.mean() + beta * log_zero * log_p.expm1().mean()


class SymmetricCrossEntropy(Method):
    """Cross-entropy in both directions."""

    name: ClassVar[str] = "sce"
    alpha: NonNegative
    beta: NonNegative
    log_zero: Annotated[float, Field(lt=0, description="a number < 0")]

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss."""
        return symmetric_cross_entropy(logits, targets, self.alpha, self.beta, self.log_zero)
