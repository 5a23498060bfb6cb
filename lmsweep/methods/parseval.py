"""Parseval networks (Cisse et al., 2017): layers that enlarge no distance, kept so after every update."""

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from lmsweep.methods.method import Method, linear_layers


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
    """The layers that are kept orthonormal, and the factor between their weight and the matrix that is.

    A convolution hands each pixel to as many places as its kernel has, which enlarges distances by up to the
    root of that number.
    """
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    last = [] if output else linear_layers(network)[-1:]
    for layer in layers:
        if layer not in last:
            kernel = math.prod(layer.kernel_size) if isinstance(layer, nn.Conv2d) else 1
            yield layer, math.sqrt(kernel)


def matrix(layer: nn.Conv2d | nn.Linear, factor: float) -> Tensor:
    """The matrix of a layer whose singular values the method keeps near 1."""
    return factor * layer.weight.flatten(1)


class Parseval(Method):
    """Cross-entropy with orthonormal layers, and convex sums where the network has residuals.

    `output` says whether the last linear layer is kept orthonormal, too, which bounds the logits. A block of
    a network has a parameter `mix` if its sum can be weighted.
    """

    name: ClassVar[str] = "parseval"
    beta: Annotated[float, Field(gt=0, le=0.5, description="a number in (0, 0.5]")]
    output: Annotated[bool, Field(description="true or false")]

    def prepare(self, network: nn.Module) -> None:
        """Start from orthonormal layers and from means in place of sums."""
        with torch.no_grad():
            for layer, factor in constrained(network, self.output):
                fresh = torch.empty(layer.weight.shape)  # contiguous, whatever the order of memory is
                layer.weight.copy_(nn.init.orthogonal_(fresh, 1 / factor))
        for block in network.modules():
            if "mix" in block._parameters:
                block.register_parameter("mix", nn.Parameter(torch.tensor([0.5, 0.5])))

    @torch.no_grad()
    def after_update(self, network: nn.Module) -> None:
        """Bring layers nearer to orthonormal ones, and weights of sums back to the simplex."""
        for layer, factor in constrained(network, self.output):
            stepped = orthonormality_step(matrix(layer, factor), self.beta) / factor
            layer.weight.copy_(stepped.view_as(layer.weight))
        for block in network.modules():
            if block._parameters.get("mix") is not None:
                mix = block.get_parameter("mix")
                mix.copy_(on_the_simplex(mix))
