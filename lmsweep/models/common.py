"""What several networks share: standardisation, and hidden layers in a chain."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel; None leaves either out.

    Networks do this as their first step, so that attacks and margins are measured in pixels.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, channels: int, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            if values is not None and len(values) != channels:
                raise ValueError(f"data.{name} has {len(values)} values for {channels} channels")
        self.identity = mean is None and std is None
        # Not saved: they come from the configuration, and a checkpoint should not depend on them being there.
        self.register_buffer("mean", torch.tensor(mean or [0.0] * channels), persistent=False)
        self.register_buffer("std", torch.tensor(std or [1.0] * channels), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Standardised images, or other samples with channels first."""
        if self.identity:
            return x
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x - self.mean.view(shape)) / self.std.view(shape)


class Chain(nn.Module):
    """Standardise, run the hidden layers in the order of `layer_names`, and let `out` give the logits."""

    standardise: Standardise
    layer_names: tuple[str, ...]
    out: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        x = self.standardise(x)
        for name in self.layer_names:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.out(x.flatten(1))
        return logits
