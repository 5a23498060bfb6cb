"""What several networks share: standardisation, and hidden layers in a chain."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Numbers between a gradient at images and the product it is made of: 16 images of MNIST with 5x5 kernels. So
# small a buffer is used again; the system would hand out a larger one anew, page by page, every time.
NUMBERS_AT_ONCE = 16 * 25 * 28 * 28


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


class ImageConv2d(nn.Conv2d):
    """A convolution with a faster gradient at images of one channel on CPUs.

    oneDNN's kernel for it takes four times as long as the matrix product that the gradient is. Margins at the
    input and attacks ask for it; where nobody does, and for more channels, this is `nn.Conv2d`. One thing is
    left out, which neither needs: how the image changes the gradient of the weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """What `nn.Conv2d` gives."""
        known = (
            self.in_channels == 1 and self.padding == "same" and all(size % 2 for size in self.kernel_size)
        )
        asked = x.requires_grad and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if not (known and asked):
            return super().forward(x)
        # Weights get their gradient from torch's convolution, which does not run for the image alone.
        out: Tensor = _ImageGradient.apply(super().forward(x.detach()), x, self.weight)
        return out


class _ImageGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.size = x.shape[2:]
        ctx.mark_dirty(out)  # the same tensor, and no view, which a ReLU in place could not follow
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Of differentiable operations only, because exact mode goes through it again.
        (gradient,) = gradients
        (weight,) = ctx.saved_tensors
        rows, kernel = weight.flatten(1).t(), weight.shape[2:]

        def at_images(part: Tensor) -> Tensor:
            # `@` would copy the gradient; flattened it is a view, in channels-last order too.
            columns = torch.bmm(rows.expand(len(part), -1, -1), part.flatten(2))
            return F.fold(columns, ctx.size, kernel, padding=tuple(size // 2 for size in kernel))

        images = max(1, NUMBERS_AT_ONCE // (kernel.numel() * ctx.size.numel()))
        return gradient, torch.cat([at_images(part) for part in gradient.split(images)]), None


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


def added(kept: Tensor, residual: Tensor, mix: Tensor | None) -> Tensor:
    """The sum at the end of a residual block, weighted by the pair `mix` if there is one."""
    return kept + residual if mix is None else mix[0] * kept + mix[1] * residual
