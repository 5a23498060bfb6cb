"""Random changes of training images, as whole-batch tensor operations on the images' own device.

The paper trains CIFAR-10 "with data augmentation (random image transformations such as cropping and
contrast/hue changes)" and gives no sizes; those in conf/data/ are ours. Each sample gets a draw of its own,
and each kind of change a seed of its own, so switching one on or off leaves the others as they were.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lmsweep.seeds import ALL, Share, derive_seed, to_device

# The luma of ITU-R BT.601, which torchvision and TensorFlow use too.
_GRAY = (0.2989, 0.587, 0.114)


def as_pixels(x: Tensor) -> Tensor:
    """Images as float in [0, 1]."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


@dataclass(frozen=True)
class Augmentation:
    """Which changes are made, and how far they go; the default changes nothing.

    Brightness, contrast and saturation are factors drawn from 1 - amount to 1 + amount; hue is a turn of the
    colour circle drawn from -amount to amount.
    """

    pad: int = 0
    flip: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def check(self, input_shape: tuple[int, ...]) -> None:
        """Raise ValueError when images of this shape cannot be changed like this."""
        if self == NO_AUGMENTATION:
            return
        if len(input_shape) != 3:
            raise ValueError(f"samples of shape {tuple(input_shape)} are not images")
        if input_shape[0] != 3 and (self.saturation or self.hue):
            raise ValueError(f"saturation and hue need 3 channels, and these images have {input_shape[0]}")

    def __call__(self, x: Tensor, *, seed: int, share: Share = ALL) -> Tensor:
        """Change a batch of images, or a `share` of it; uint8 is taken, and float in [0, 1] comes out."""

        def uniform(purpose: str, *shape: int) -> Tensor:
            # Drawn on the CPU and for the whole batch, so that a run sees the same images on all devices.
            generator = torch.Generator().manual_seed(derive_seed(seed, purpose))
            whole = torch.rand(share.whole(len(x)), *shape, generator=generator)
            return to_device(share.of(whole), x.device)

        if self.pad:
            offsets = (uniform("crop", 2) * (2 * self.pad + 1)).long()
            x = shifted(x, offsets, self.pad)
        if self.flip:
            x = torch.where((uniform("flip") < 0.5).view(-1, 1, 1, 1), x.flip(-1), x)
        x = as_pixels(x)
        for change, centre in ((brightness, 1), (contrast, 1), (saturation, 1), (hue, 0)):
            purpose = change.__name__
            amount = getattr(self, purpose)
            if amount:
                x = change(x, centre + amount * (2 * uniform(purpose) - 1))
        return x


NO_AUGMENTATION = Augmentation()


def shifted(x: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """Pad with `pad` zeros on every side and cut the old size out at `offsets` (n, 2), row and column."""
    height, width = x.shape[-2:]
    padded = F.pad(x, [pad] * 4)
    rows = offsets[:, 0, None] + torch.arange(height, device=x.device)
    columns = offsets[:, 1, None] + torch.arange(width, device=x.device)
    samples = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    return padded[samples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def brightness(x: Tensor, factors: Tensor) -> Tensor:
    """Scale every image by its factor."""
    return _blend(x, torch.zeros_like(x[:, :, :1, :1]), factors)


def contrast(x: Tensor, factors: Tensor) -> Tensor:
    """Scale every image's difference from its mean gray."""
    return _blend(x, _gray(x).mean((-2, -1), keepdim=True), factors)


def saturation(x: Tensor, factors: Tensor) -> Tensor:
    """Scale every pixel's difference from its gray."""
    return _blend(x, _gray(x), factors)


def hue(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the colours of every image around the circle of hues; 1 is a full turn.

    Value and chroma stay, so each channel is a piecewise linear function of the angle alone, and the detour
    over HSV's saturation, with its division by small values, is not needed.
    """
    red, green, blue = x.unbind(1)
    value, low = x.amax(1), x.amin(1)
    chroma = value - low
    scale = chroma.where(chroma > 0, torch.ones_like(chroma))
    angle = torch.where(
        value == red,
        (green - blue) / scale,
        torch.where(value == green, 2 + (blue - red) / scale, 4 + (red - green) / scale),
    )
    angle = angle + 6 * turns.view(-1, 1, 1)
    channels = []
    for corner in (5, 3, 1):  # where on the circle of six the channel is lowest
        distance = (corner + angle) % 6
        channels.append(value - chroma * torch.minimum(distance, 4 - distance).clamp(0, 1))
    return torch.stack(channels, 1)


def _gray(x: Tensor) -> Tensor:
    if x.shape[1] == 1:
        return x
    weights = to_device(torch.tensor(_GRAY, dtype=x.dtype), x.device).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def _blend(x: Tensor, other: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(other.expand_as(x), x, factors.view(-1, 1, 1, 1)).clamp(0, 1)
