"""Gaussian input noise: a robustness test that knows no gradient (the paper's Figure 10)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import Attack, Clean, Flag, Strengths
from lmsweep.attacks.trajectory import Examples, unsettled
from lmsweep.seeds import derive_seed


def standard_noise(x: Tensor, *, seed: int) -> Tensor:
    """Standard normal numbers in the shape of `x` that depend on the seed alone, not on the device."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "gaussian"))
    return torch.randn(x.shape, generator=generator).to(x)


def gaussian_noise(x: Tensor, *, stddev: float, seed: int, clip_pixels: bool = True) -> Tensor:
    """Return `x` with independent noise of this standard deviation in every pixel."""
    noisy = x + stddev * standard_noise(x, seed=seed)
    return noisy.clamp(0.0, 1.0) if clip_pixels else noisy


class GaussianNoise(Attack):
    """The same noise at every strength, scaled, so that a curve over standard deviations has no jumps."""

    transfers = False
    unit = "stddev"

    stddevs: Strengths
    clip_pixels: Flag = True

    @property
    @override
    def strengths(self) -> tuple[float, ...]:
        return self.stddevs

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        noise = standard_noise(clean.x, seed=seed)
        for stddev in self.strengths:
            noisy = clean.x + stddev * noise
            yield unsettled(noisy.clamp(0.0, 1.0) if self.clip_pixels else noisy)
