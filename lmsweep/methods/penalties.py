"""Penalties on derivatives by images: the Jacobian, differences of class gradients, the loss's gradient."""

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lmsweep.attacks.trajectory import per_sample
from lmsweep.methods.method import Method, Positive, Step

Projections = Annotated[
    int | None, Field(ge=1, description="a whole number >= 1, or null for all classes exactly")
]

Dual = Annotated[float, Field(ge=1)]


def squared_jacobian(logits: Tensor, x: Tensor, directions: Tensor | None = None) -> Tensor:
    """The squared Frobenius norm of d logits / d x of each sample: (batch,), differentiable.

    `directions` (batch, n, classes) are random unit vectors v. The mean over them of K |d (v logits) / d x|^2
    has the norm as its expectation (Hoffman et al., 2019), and costs n backward passes in place of K.
    """
    kind = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(kind)
    classes = logits.shape[1]
    if directions is None:
        outputs = list(logits.unbind(1))
        factor = 1.0
    else:
        outputs = list((logits.unsqueeze(1) * directions.to(logits)).sum(2).unbind(1))
        factor = classes / directions.shape[1]
    gradients = (torch.autograd.grad(output.sum(), x, create_graph=True)[0] for output in outputs)
    return factor * torch.stack([g.to(kind).flatten(1).square().sum(1) for g in gradients]).sum(0)


def unit_vectors(step: Step, count: int) -> Tensor:
    """Random directions of logits, (batch, count, classes), the same for any number of processes."""
    return F.normalize(step.normal(count, step.logits.shape[1]), dim=2)


class Jacobian(Method):
    """weight / 2 times the squared norm of the Jacobian (Sokolic et al., 2016; Hoffman et al., 2019)."""

    name: ClassVar[str] = "jacobian"
    input_gradient: ClassVar[bool] = True
    differentiates_twice: ClassVar[bool] = True
    weight: Positive
    projections: Projections

    def term(self, step: Step) -> Tensor:
        """The penalty, as a mean over the batch."""
        return self.weight / 2 * squared_jacobian(step.logits, step.x, self._directions(step)).mean()

    def _directions(self, step: Step) -> Tensor | None:
        return None if self.projections is None else unit_vectors(step, self.projections)


class CrossLipschitz(Jacobian):
    """Differences of class gradients (Hein and Andriushchenko, 2017): 1/K^2 sum_lm |grad z_l - grad z_m|^2.

    The double sum is 2/K times the squared Jacobian of the logits less their mean.
    """

    name: ClassVar[str] = "cross_lipschitz"

    def term(self, step: Step) -> Tensor:
        """The penalty, as a mean over the batch."""
        logits = step.logits
        centred = logits - logits.mean(1, keepdim=True)
        norms = squared_jacobian(centred, step.x, self._directions(step))
        return self.weight * 2 / logits.shape[1] * norms.mean()


def steepest(gradient: Tensor, norm: float) -> Tensor:
    """The direction of length 1 in the l_norm in which a function with this gradient grows fastest.

    The growth is the gradient's dual norm. Entries are divided by the largest one first, because powers of
    small numbers underflow.
    """
    flat = gradient.flatten(1)
    size = flat.abs()
    if norm == float("inf"):
        return gradient.sign()
    if norm == 1:
        best = F.one_hot(size.argmax(1), flat.shape[1]).to(flat)
        return (best * flat.sign()).view_as(gradient)
    scaled = size / size.amax(1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
    power = flat.sign() * scaled.pow(1 / (norm - 1))
    length = power.abs().pow(norm).sum(1).pow(1 / norm)
    return power.view_as(gradient) / per_sample(length.clamp_min(torch.finfo(size.dtype).tiny), gradient)


class InputGradient(Method):
    """weight times the squared dual norm of the loss's gradient at the images (Finlay and Oberman, 2019).

    By finite differences, ((loss(x + h d) - loss(x)) / h)^2 with d the steepest direction, which is taken for
    a constant: one more pass in place of a second derivative.
    """

    name: ClassVar[str] = "input_gradient"
    input_gradient: ClassVar[bool] = True
    further_passes: ClassVar[bool] = True
    weight: Positive
    norm: Annotated[Dual | Literal["inf"], Field(description="a number >= 1, or inf")]
    h: Positive

    def term(self, step: Step) -> Tensor:
        """The penalty, as a mean over the batch."""
        here = F.cross_entropy(step.logits, step.y, reduction="none")
        (gradient,) = torch.autograd.grad(here.sum(), step.x, retain_graph=True)
        with torch.no_grad():
            moved = step.x + self.h * steepest(gradient, float(self.norm))
        there = F.cross_entropy(step.again(moved), step.y, reduction="none")
        return self.weight * ((there - here) / self.h).square().mean()
