"""Dual norms: the distance in l_p divides by the gradient's l_q norm, q = p / (p - 1)."""

import math

import torch
from torch import Tensor

from lmsweep.margin.options import NORM


def dual_exponent(norm: float | str) -> float:
    """Return q with 1/p + 1/q = 1 for `norm` p >= 1 or "inf" (Eq. 7 of the paper)."""
    p = NORM.check("norm", norm)
    if p == 1:
        return math.inf
    return 1.0 if math.isinf(p) else p / (p - 1)


def sample_norm(gradient: Tensor, q: float) -> Tensor:
    """Return the l_q norm of each sample's gradient, in float32 or better, with subgradient 0 at zero."""
    gradient = gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.float()
    # Over all dimensions at once, because a gradient in channels-last order is copied to be flattened.
    every = tuple(range(1, gradient.ndim))
    if q == 2:
        return torch.linalg.vector_norm(gradient, dim=every)
    if q in (1.0, math.inf):  # 7 and 20 times faster on CPUs than torch's own norms
        return gradient.abs().sum(every) if q == 1 else gradient.abs().amax(every)
    flat = gradient.flatten(1)
    # Powers of small gradients underflow (q = 11 for p = 1.1), so the largest entry is taken out first.
    # It is a constant factor of a homogeneous function: the derivative is right without its own.
    scale = flat.detach().abs().amax(dim=1, keepdim=True)
    zero = scale == 0
    # The inner `where` keeps the infinite slope of the root at 0 out of the graph.
    powers = (flat / scale.masked_fill(zero, 1.0)).abs().pow(q).sum(dim=1, keepdim=True)
    root = torch.where(zero, 1.0, powers).pow(1 / q)
    return torch.where(zero, 0.0, root * scale).squeeze(1)
