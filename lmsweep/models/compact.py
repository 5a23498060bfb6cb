"""A residual network for 32x32 images that is small enough to learn CIFAR-10 on one core in minutes."""

from collections.abc import Sequence

from torch import Tensor, nn

from lmsweep.models.cnn import scaled
from lmsweep.models.common import Chain, Standardise, added


class CompactResNet(Chain):
    """Three convolutions that each halve the image, and a residual block, all with batch norm and ReLU.

    In the style of the networks of CIFAR-10 speed records: few layers, channels that double where the image
    is halved, and the largest value of each map as the features of the last layer. The first convolution
    halves the image by its stride, so that the dear layers see a quarter of the pixels. At `width` 1 a 32x32
    image takes 15 million multiply-adds. Hidden layers are `conv1`, `conv2`, `block` and `conv3`.
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
