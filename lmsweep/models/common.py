"""What several networks share: standardisation, and convolutions with a faster gradient at images."""

from collections.abc import Sequence
from typing import Any, cast

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
        if not self.is_asked(x):
            return super().forward(x)
        # Weights get their gradient from torch's convolution, which does not run for the image alone.
        return _joined(super().forward(x.detach()), x, self.weight, 1)

    def is_asked(self, x: Tensor) -> bool:
        """Whether the gradient at these images is wanted, and goes the faster way."""
        known = (
            self.in_channels == 1 and self.padding == "same" and all(size % 2 for size in self.kernel_size)
        )
        wanted = x.requires_grad and x.device.type == "cpu"
        return known and wanted and not torch.is_autocast_enabled("cpu")


class ImageBlock(nn.Sequential):
    """An `ImageConv2d`, its max-pooling, and what follows them.

    The gradient at images goes through pooling and convolution in one piece, a few images at a time: that of
    all images between the two is larger than the cache, and mostly zeros.
    """

    def forward(self, x: Tensor) -> Tensor:
        """What the layers give one after the other."""
        conv, pool = cast(ImageConv2d, self[0]), cast(nn.MaxPool2d, self[1])
        size = cast(int, pool.kernel_size)
        # Who looks at one of the two gets its gradient, too.
        watched = any(layer._forward_hooks or layer._forward_pre_hooks for layer in (conv, pool))
        if watched or not conv.is_asked(x):
            return super().forward(x)
        before = conv(x.detach())
        pooled, places = F.max_pool2d(before, size, return_indices=True)
        pooled = _joined(pooled, x, conv.weight, size, before.detach(), places)
        for layer in list(self)[2:]:
            pooled = layer(pooled)
        return pooled


def _joined(out: Tensor, x: Tensor, weight: Tensor, size: int, *pooling: Tensor) -> Tensor:
    """What a convolution gave, or pooling in windows of `size` after it, with a gradient at its images.

    The way to the images is a node of its own, which a backward pass for weights only never enters.
    """
    # In a tuple the weight is no input of the node, which would otherwise be on the way to it.
    return _Join.apply(out, _ImageGradient.apply(x, (weight,), out.shape, size, *pooling))


class _Join(torch.autograd.Function):
    """The first tensor itself; its gradient goes to the first and to the second."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, _: Tensor) -> Tensor:
        ctx.mark_dirty(out)  # the same tensor, and no view, which a ReLU in place could not follow
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004 - torch's
        return gradients[0], gradients[0]


class _ImageGradient(torch.autograd.Function):
    """Zeros of a shape, of one number in memory, whose gradient is that at the images of a convolution."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weights: tuple[Tensor], shape: torch.Size, size: int, *pooling: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*pooling)
        ctx.weights, ctx.images, ctx.window = weights, x.shape[2:], [size, size]
        return x.new_zeros(()).expand(shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Of differentiable operations only, because exact mode goes through it again.
        (gradient,) = gradients
        (weight,), pooling = ctx.weights, ctx.saved_tensors
        rows, kernel = weight.flatten(1).t(), weight.shape[2:]
        count = max(1, NUMBERS_AT_ONCE // (kernel.numel() * ctx.images.numel()))

        def at_images(part: Tensor, *pooling: Tensor) -> Tensor:
            if pooling:
                before, places = pooling
                part = torch.ops.aten.max_pool2d_with_indices_backward(
                    part, before, ctx.window, ctx.window, [0, 0], [1, 1], False, places
                )
            # `@` would copy the gradient; flattened it is a view, in channels-last order too.
            columns = torch.bmm(rows.expand(len(part), -1, -1), part.flatten(2))
            return F.fold(columns, ctx.images, kernel, padding=tuple(size // 2 for size in kernel))

        parts = zip(*(whole.split(count) for whole in (gradient, *pooling)), strict=True)
        at_all = torch.cat([at_images(*part) for part in parts])
        return at_all, *[None] * (3 + len(pooling))


def added(kept: Tensor, residual: Tensor, mix: Tensor | None) -> Tensor:
    """The sum at the end of a residual block, weighted by the pair `mix` if there is one."""
    return kept + residual if mix is None else mix[0] * kept + mix[1] * residual
