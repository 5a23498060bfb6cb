"""Gaussian input noise: a robustness test that knows no gradient (the paper's Figure 10)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import Attack, Clean, Flag, Strengths
from lmsweep.attacks.trajectory import Examples, unsettled
from lmsweep.seeds import derive_seed


def gaussian_noise(x: Tensor, *, stddev: float, seed: int, clip_pixels: bool = True) -> Tensor:
    """Return `x` with independent noise of this standard deviation in every pixel.

    The noise depends on the seed alone, not on the device.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "gaussian"))
    noisy = x + stddev * torch.randn(x.shape, generator=generator).to(x)
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
        for stddev in self.strengths:
            yield unsettled(gaussian_noise(clean.x, stddev=stddev, seed=seed, clip_pixels=self.clip_pixels))
