"""Residual networks: wide ones, the paper's for CIFAR-10, and a compact one for quick trials on it."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.models.chain import Chain, scaled
from lmsweep.models.common import Standardise, added


class WideResNet(nn.Module):
    """Pre-activation residual network of `depth` 6n + 4 convolutions, `width` times as wide as usual.

    By Zagoruyko & Komodakis, 2016. The depth counts the first convolution, 2n in each of three groups, and
    three 1x1 shortcuts: 58 are 1 + 54 + 3. `stride` is the first convolution's: 2 halves every map, for a
    quarter of the work.

    Hidden layers are `conv1` and the residual units `block1.0` to `block3.<n-1>`; a unit's output is taken
    after its addition, before the next unit normalises it.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        depth: int,
        width: int,
        stride: int = 1,
        dropout: float = 0.0,
        input_mean: Sequence[float] | None = None,
        input_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if depth < 10 or depth % 6 != 4:
            raise ValueError(f"depth={depth} is not 6n + 4 with n >= 1, such as 10, 16, 28, 40 or 58")
        if width < 1:
            raise ValueError("width must be a whole number >= 1")
        if stride < 1:
            raise ValueError(f"stride={stride} is not a whole number >= 1")
        units = (depth - 4) // 6
        self.standardise = Standardise(input_shape[0], input_mean, input_std)
        self.conv1 = nn.Conv2d(input_shape[0], 16, 3, stride, padding=1, bias=False)
        before, names = 16, ["conv1"]
        for group, (channels, halving) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
            after = channels * width
            blocks = [ResidualUnit(before, after, halving, dropout)]
            blocks += [ResidualUnit(after, after, 1, dropout) for _ in range(units - 1)]
            self.add_module(f"block{group}", nn.Sequential(*blocks))
            names += [f"block{group}.{unit}" for unit in range(units)]
            before = after
        self.norm = nn.BatchNorm2d(before)
        self.out = nn.Linear(before, num_classes)
        self.layer_names = tuple(names)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.conv1(self.standardise(x))
        for group in ("block1", "block2", "block3"):
            x = self.get_submodule(group)(x)
        return self.out(F.relu(self.norm(x)).mean((2, 3)))


class ResidualUnit(nn.Module):
    """Two 3x3 convolutions, each after batch norm and ReLU, added to the input.

    Where the number of channels changes, a 1x1 convolution of the activated input takes the input's place.
    A method may set `mix`, the weights of the two summands.
    """

    mix: nn.Parameter | None

    def __init__(self, before: int, after: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.register_parameter("mix", None)
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else None

    def forward(self, x: Tensor) -> Tensor:
        """The unit's output."""
        active = F.relu(self.norm1(x))
        residual = self.conv2(self.dropout(F.relu(self.norm2(self.conv1(active)))))
        kept = x if self.shortcut is None else self.shortcut(active)
        return added(kept, residual, self.mix)


class CompactResNet(Chain):
    """Three convolutions that each halve the image, and a residual block, all with batch norm and ReLU.

    It is small enough to learn CIFAR-10 on one core in minutes, in the style of the networks of CIFAR-10
    speed records: few layers, channels that double where the image is halved, and the largest value of each
    map as the features of the last layer. The first convolution halves the image by its stride, so that the
    dear layers see a quarter of the pixels. At `width` 1 a 32x32 image takes 15 million multiply-adds.
    Hidden layers are `conv1`, `conv2`, `block` and `conv3`.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        channels: Sequence[int] = (32, 64, 128),
        width: float = 1.0,
        dropout: float = 0.0,
        input_mean: Sequence[float] | None = None,
        input_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if len(channels) != 3:
            raise ValueError(f"channels has {len(channels)} numbers for the three convolutions")
        if min(input_shape[1:]) < 8:
            raise ValueError(f"images of {input_shape[1]}x{input_shape[2]} are smaller than 8x8")
        one, two, three = (scaled(count, width) for count in channels)
        self.standardise = Standardise(input_shape[0], input_mean, input_std)
        self.conv1 = _convolution(input_shape[0], one, kernel=4, stride=2)
        self.conv2 = _convolution(one, two, pool=2)
        self.block = _Block(two)
        self.conv3 = _convolution(two, three, pool=2)
        self.conv3.extend([nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(dropout)])
        self.layer_names = ("conv1", "conv2", "block", "conv3")
        self.out = nn.Linear(three, num_classes)


class _Block(nn.Module):
    """Two convolutions, added to what they are given, by the weights that a method may put into `mix`."""

    mix: nn.Parameter | None

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_parameter("mix", None)
        self.residual = nn.Sequential(_convolution(channels, channels), _convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return added(x, self.residual(x), self.mix)


def _convolution(before: int, after: int, kernel: int = 3, stride: int = 1, pool: int = 1) -> nn.Sequential:
    layer = nn.Sequential(nn.Conv2d(before, after, kernel, stride, padding=1, bias=False))
    if pool > 1:
        layer.append(nn.MaxPool2d(pool))  # first, so that batch norm and ReLU have a quarter of the work
    return layer.extend([nn.BatchNorm2d(after), nn.ReLU(inplace=True)])
