"""Budgets by signal-to-noise ratio, in decibels as for Parseval networks (Cisse et al., 2017).

SNR(x, delta) = 20 log10(|x| / |delta|) in l2 norms, so 33 dB is a perturbation of 2.2% of the image's norm.
"""

import torch
from torch import Tensor

from lmsweep.attacks.gradient import per_sample

BISECTIONS = 50


def snr(x: Tensor, perturbed: Tensor) -> Tensor:
    """The signal-to-noise ratio of each sample in dB; infinite where nothing was changed."""
    signal = x.double().flatten(1).norm(dim=1)
    noise = (perturbed.double() - x.double()).flatten(1).norm(dim=1)
    return 20 * torch.log10(signal / noise)


def scale_to_snr(x: Tensor, direction: Tensor, target: float, *, clip_pixels: bool) -> Tensor:
    """Return one factor t per sample, such that the SNR of x + t * direction is `target` dB.

    With pixel clipping the perturbation that is left grows with t more slowly and has no closed form, so t is
    found by bisection. A sample whose direction cannot reach the budget, because all its pixels are at their
    bounds before, gets the smallest factor that takes them there; one whose direction is zero gets 0.
    """
    start, steps = x.double(), direction.double()
    size = per_sample(steps.flatten(1).abs().amax(1), x)
    wanted = start.flatten(1).norm(dim=1) * 10 ** (-target / 20)
    if not clip_pixels:
        factor = wanted / steps.flatten(1).norm(dim=1)
        return torch.where(size.flatten() > 0, factor, 0.0).to(x.dtype)
    # At this factor every pixel that moves at all has met its bound.
    moving = steps.abs().masked_fill(steps == 0, torch.inf).flatten(1).amin(1)
    high = torch.where(size.flatten() > 0, 1.0 / moving, 0.0)
    low = torch.zeros_like(high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        moved = (start + per_sample(middle, x) * steps).clamp(0.0, 1.0)
        enough = (moved - start).flatten(1).norm(dim=1) >= wanted
        high, low = torch.where(enough, middle, high), torch.where(enough, low, middle)
    return high.to(x.dtype)
