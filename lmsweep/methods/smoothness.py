"""Networks that change little with their images: penalties on derivatives, and Parseval networks.

The penalties are on the Jacobian, on differences of class gradients, and on the gradient of the loss.
"""

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmsweep.attacks.balls import per_sample
from lmsweep.methods.method import Method, Positive, Step, linear_layers


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


class Jacobian(Method):
    """weight / 2 times the squared norm of the Jacobian (Sokolic et al., 2016; Hoffman et al., 2019).

    This and the other penalties are means over the batch.
    """

    name: ClassVar[str] = "jacobian"
    input_gradient: ClassVar[bool] = True
    differentiates_twice: ClassVar[bool] = True
    weight: Positive
    projections: Annotated[
        int | None, Field(ge=1, description="a whole number >= 1, or null for all classes exactly")
    ]

    def term(self, step: Step) -> Tensor:
        return self.weight / 2 * squared_jacobian(step.logits, step.x, self.directions(step)).mean()

    def directions(self, step: Step) -> Tensor | None:
        """Random unit vectors of logits, (batch, projections, classes); None for the exact norm."""
        if self.projections is None:
            return None
        return F.normalize(step.normal(self.projections, step.logits.shape[1]), dim=2)


class CrossLipschitz(Jacobian):
    """Differences of class gradients (Hein and Andriushchenko, 2017): 1/K^2 sum_lm |grad z_l - grad z_m|^2.

    The double sum is 2/K times the squared Jacobian of the logits less their mean.
    """

    name: ClassVar[str] = "cross_lipschitz"

    def term(self, step: Step) -> Tensor:
        logits = step.logits
        centred = logits - logits.mean(1, keepdim=True)
        norms = squared_jacobian(centred, step.x, self.directions(step))
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
    norm: Annotated[
        Annotated[float, Field(ge=1)] | Literal["inf"], Field(description="a number >= 1, or inf")
    ]
    h: Positive

    def term(self, step: Step) -> Tensor:
        here = F.cross_entropy(step.logits, step.y, reduction="none")
        (gradient,) = torch.autograd.grad(here.sum(), step.x, retain_graph=True)
        with torch.no_grad():
            moved = step.x + self.h * steepest(gradient, float(self.norm))
        there = F.cross_entropy(step.again(moved), step.y, reduction="none")
        return self.weight * ((there - here) / self.h).square().mean()


def orthonormality_step(weight: Tensor, beta: float) -> Tensor:
    """(1 + beta) W - beta W W^T W: a step down the gradient of beta / 4 |W^T W - 1|^2.

    A singular value s becomes (1 + beta) s - beta s^3, whose fixed point is 1. Of the two ways to multiply,
    the one with the smaller square matrix is taken.
    """
    rows, columns = weight.shape
    product = (weight @ weight.t()) @ weight if rows <= columns else weight @ (weight.t() @ weight)
    return torch.add((1 + beta) * weight, product, alpha=-beta)


def on_the_simplex(pair: Tensor) -> Tensor:
    """The nearest two weights that are not negative and sum to 1."""
    first = ((pair[0] - pair[1] + 1) / 2).clamp(0, 1)
    return torch.stack([first, 1 - first])


def constrained(network: nn.Module, output: bool) -> Iterator[tuple[nn.Conv2d | nn.Linear, float]]:
    """The layers that are kept orthonormal, and the factor between their weight and the matrix that is so.

    A convolution hands each pixel to as many places as its kernel has, which enlarges distances by up to the
    root of that number.
    """
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    last = [] if output else linear_layers(network)[-1:]
    for layer in layers:
        if layer not in last:
            kernel = math.prod(layer.kernel_size) if isinstance(layer, nn.Conv2d) else 1
            yield layer, math.sqrt(kernel)


class Parseval(Method):
    """Cross-entropy with orthonormal layers, and convex sums where the network has residuals.

    `output` says whether the last linear layer is kept orthonormal, too, which bounds the logits. A block of
    a network has a parameter `mix` if its sum can be weighted.
    """

    name: ClassVar[str] = "parseval"
    beta: Annotated[float, Field(gt=0, le=0.5, description="a number in (0, 0.5]")]
    output: Annotated[bool, Field(description="true or false")]

    def prepare(self, network: nn.Module) -> None:
        # Orthonormal layers, and means in place of sums.
        with torch.no_grad():
            for layer, factor in constrained(network, self.output):
                fresh = torch.empty(layer.weight.shape)  # contiguous, whatever the order of memory is
                layer.weight.copy_(nn.init.orthogonal_(fresh, 1 / factor))
        for block in network.modules():
            if "mix" in block._parameters:
                block.register_parameter("mix", nn.Parameter(torch.tensor([0.5, 0.5])))

    @torch.no_grad()
    def after_update(self, network: nn.Module) -> None:
        for layer, factor in constrained(network, self.output):
            stepped = orthonormality_step(factor * layer.weight.flatten(1), self.beta) / factor
            layer.weight.copy_(stepped.view_as(layer.weight))
        for block in network.modules():
            if block._parameters.get("mix") is not None:
                mix = block.get_parameter("mix")
                mix.copy_(on_the_simplex(mix))
