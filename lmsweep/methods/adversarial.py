"""Robust trainings with a loss of their own: TRADES and MMA.

Both attack inside an l_inf ball, on the network in evaluation mode, with random numbers that depend on the
step alone. `method=pgd` needs nothing here: it is cross-entropy on the examples of `adversarial=pgd`.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.attacks.balls import per_sample, project
from lmsweep.attacks.trajectory import logit_margin, soft_logit_margin
from lmsweep.margin.temporary import frozen
from lmsweep.methods.method import Count, Method, Positive, Step

BISECTIONS = 10  # the point on the boundary is known to a thousandth of the ball


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(softmax(logits) || softmax(others)) of each sample."""
    kind = torch.promote_types(logits.dtype, torch.float32)
    log_p, log_q = logits.to(kind).log_softmax(1), others.to(kind).log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1)


class InABall(Method):
    """What methods have in common that attack inside a ball; no method by itself."""

    further_passes: ClassVar[bool] = True
    makes_examples: ClassVar[bool] = True
    epsilon: Positive
    alpha: Positive
    steps: Count

    def climbed(self, objective: Callable[[Tensor], Tensor], x: Tensor, start: Tensor) -> Tensor:
        """Images in the ball around `x` after steps of `alpha` along the sign of the objective's gradient."""
        moved = start.detach()
        for _ in range(self.steps):
            moved.requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(objective(moved).sum(), moved)
            moved = project(moved.detach() + self.alpha * gradient.sign(), x, self.epsilon, clip_pixels=True)
        return moved.detach()


class Trades(InABall):
    """Cross-entropy plus beta * KL(p(x) || p(x')), x' the worst image of the ball (Zhang et al., 2019)."""

    name: ClassVar[str] = "trades"
    beta: Positive

    def term(self, step: Step) -> Tensor:
        # Gradients flow through both answers.
        x, network = step.x.detach(), step.network
        with frozen(network):
            with torch.no_grad():
                clean = network(x)
            start = x + 0.001 * noise(step)  # at x itself the divergence has no gradient
            moved = self.climbed(lambda image: divergence(clean, network(image)), x, start)
        return self.beta * divergence(step.logits, step.again(moved)).mean()


def nearest_on_the_line(network: nn.Module, x: Tensor, far: Tensor, y: Tensor) -> Tensor:
    """The first image on the way from `x` to `far` that is misclassified, where `far` is and `x` is not."""
    low, high = x.new_zeros(len(x)), x.new_ones(len(x))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        with torch.no_grad():
            wrong = logit_margin(network(torch.lerp(x, far, per_sample(middle, x))), y) > 0
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return torch.lerp(x, far, per_sample(high, x))


class MMA(InABall):
    """Max-margin adversarial training (Ding et al., 2020): each sample at its own distance from the boundary.

    A sample that is right and can be fooled inside the ball counts by the cross-entropy of the nearest
    misclassified image found; a sample that is wrong by its own; any other has its margin and does not count.
    """

    name: ClassVar[str] = "mma"
    weight: Positive

    def term(self, step: Step) -> Tensor:
        x, y, network = step.x.detach(), step.y, step.network
        with frozen(network):
            with torch.no_grad():
                right = logit_margin(network(x), y) <= 0
            start = project(x + self.epsilon * noise(step).clamp(-1, 1), x, self.epsilon, clip_pixels=True)
            far = self.climbed(lambda image: soft_logit_margin(network(image), y), x, start)
            with torch.no_grad():
                near = right & (logit_margin(network(far), y) > 0)
            boundary = nearest_on_the_line(network, x, far, y)
        moved = torch.where(per_sample(near, x), boundary, x)
        at_boundary = F.cross_entropy(step.again(moved), y, reduction="none")
        at_home = F.cross_entropy(step.logits, y, reduction="none")
        nothing = torch.zeros_like(at_home)
        return self.weight * torch.where(near, at_boundary, torch.where(right, nothing, at_home)).mean()


def noise(step: Step) -> Tensor:
    """Standard normal noise in the shape of the images."""
    return step.normal(*step.x.shape[1:]).to(step.x.dtype)
