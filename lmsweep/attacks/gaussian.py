"""Gaussian input noise: a robustness test that knows no gradient (the paper's Figure 10)."""

import torch
from torch import Tensor

from lmsweep.seeds import derive_seed


def standard_noise(x: Tensor, *, seed: int) -> Tensor:
    """Standard normal numbers in the shape of `x` that depend on the seed alone, not on the device."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "gaussian"))
    return torch.randn(x.shape, generator=generator).to(x)


def gaussian_noise(x: Tensor, *, stddev: float, seed: int, clip_pixels: bool = True) -> Tensor:
    """Return `x` with independent noise of this standard deviation in every pixel."""
    noisy = x + stddev * standard_noise(x, seed=seed)
    return noisy.clamp(0.0, 1.0) if clip_pixels else noisy
