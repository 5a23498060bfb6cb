"""Balls in l1, l2 and linf around images: the way back into them, the steepest way out, a point inside.

The ball in l1 is cut with the box of pixel values by an exact projection (Croce & Hein, 2021, "Mind the
box"): to go into the ball and then into the box would end far inside both. In l2 that order stays inside
both, is what PGD and APGD do, and is kept. In linf it is exact.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from lmsweep.seeds import ALL, Share, to_device

Norm = Literal["l1", "l2", "linf"]
ORDERS: dict[Norm, float] = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Shape one value per sample so that it broadcasts over the pixels of `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))


def lengths(change: Tensor, norm: Norm) -> Tensor:
    """The length of each sample's change."""
    return torch.linalg.vector_norm(change.flatten(1), ord=ORDERS[norm], dim=1)


def project(
    x: Tensor, centre: Tensor, epsilon: float | Tensor, clip_pixels: bool, norm: Norm = "linf"
) -> Tensor:
    """Move each sample into the ball of radius epsilon around `centre`, and into [0, 1] when asked.

    In linf this is the paper's Clip. A tensor of epsilons must broadcast over the pixels.
    """
    if norm == "linf":
        x = torch.minimum(torch.maximum(x, centre - epsilon), centre + epsilon)
        return x.clamp(0.0, 1.0) if clip_pixels else x
    change = x - centre
    if norm == "l2":
        # Rounded down a little, so that no result is longer than epsilon by a last bit.
        factor = per_sample(lengths(change, norm), x).clamp_min(1e-30).reciprocal() * epsilon * (1 - 1e-6)
        x = centre + change * factor.clamp_max(1.0)
        return x.clamp(0.0, 1.0) if clip_pixels else x
    room = torch.where(change > 0, 1 - centre, centre) if clip_pixels else torch.full_like(x, torch.inf)
    return centre + _shrunk(change, room, epsilon)


def _shrunk(change: Tensor, room: Tensor, epsilon: float | Tensor) -> Tensor:
    """The nearest point to `change` in the l1 ball, with no entry larger than `room`.

    It is sign(u) clip(|u| - t, 0, room) for the smallest t >= 0 that makes it short enough. Its length is
    piecewise linear in t, with a corner wherever an entry leaves its bound or reaches zero, so the piece is
    found by sorting the corners.
    """
    size, bound = change.flatten(1).double().abs(), room.flatten(1).double()
    radius = torch.as_tensor(epsilon, dtype=torch.float64, device=change.device).reshape(-1).expand(len(size))
    corners = torch.cat([(size - bound).clamp_min(0.0), size], 1)
    slopes = torch.cat([-torch.ones_like(size), torch.ones_like(size)], 1)
    corners, order = corners.sort(1)
    slopes = slopes.gather(1, order).cumsum(1)  # of the piece that begins at each corner
    first = torch.minimum(size, bound).sum(1, keepdim=True)
    falls = slopes[:, :-1] * corners.diff(dim=1)
    length = torch.cat([first, first + falls.cumsum(1)], 1)  # at each corner; it falls
    piece = (length > radius.unsqueeze(1)).sum(1, keepdim=True).sub(1).clamp_min(0)
    start, slope = corners.gather(1, piece), slopes.gather(1, piece).clamp_max(-1.0)
    t = start + (radius.unsqueeze(1) - length.gather(1, piece)) / slope
    t = torch.where(first > radius.unsqueeze(1), t, 0.0)
    kept = torch.minimum((size - t).clamp_min(0.0), bound)
    return (kept * change.flatten(1).sign()).view_as(change).to(change.dtype)


def steepest(gradient: Tensor, norm: Norm, entries: Tensor | float = 0.05) -> Tensor:
    """The change of length 1 in `norm` along which a linear loss climbs fastest.

    In l1 that is one pixel only, which gets nowhere; the largest `entries` (a share, for each sample) take
    equal parts instead (Tramer & Boneh, 2019). A gradient of zero moves nothing.
    """
    if norm == "linf":
        return gradient.sign()
    flat = gradient.flatten(1)
    if norm == "l2":
        # Largest entry first: squares of small gradients underflow.
        flat = flat / flat.abs().amax(1, keepdim=True).clamp_min(torch.finfo(flat.dtype).tiny)
        return (flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-12)).view_as(gradient)
    share = torch.as_tensor(entries, device=flat.device, dtype=torch.float64).expand(len(flat))
    count = (share * flat.shape[1] - 1e-6).ceil().long().clamp(1, flat.shape[1])
    limit = flat.abs().sort(1, descending=True).values.gather(1, count.unsqueeze(1) - 1)
    signs = torch.where(flat.abs() >= limit, flat.sign(), 0.0)
    return (signs / signs.abs().sum(1, keepdim=True).clamp_min(1.0)).view_as(gradient)


def random_points(
    centre: Tensor,
    epsilon: float,
    norm: Norm,
    clip_pixels: bool,
    generator: torch.Generator,
    share: Share = ALL,
) -> Tensor:
    """One random point of each sample's ball: uniform in linf, at the edge before clipping in l1 and l2."""
    # Drawn on the CPU, so that a seed means the same start on every device.
    shape = (share.whole(len(centre)), *centre.shape[1:])
    if norm == "linf":
        drawn = share.of(torch.rand(shape, generator=generator))
        noise = to_device(drawn, centre.device).to(centre.dtype) * (2 * epsilon) - epsilon
    else:
        drawn = share.of(torch.randn(shape, generator=generator))
        drawn = epsilon * drawn / per_sample(lengths(drawn, norm), drawn)
        noise = to_device(drawn, centre.device).to(centre.dtype)
    return project(centre + noise, centre, epsilon, clip_pixels, norm)
