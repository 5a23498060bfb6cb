"""Networks whose layers follow one another: convolutional ones for MNIST, dense ones, a linear classifier."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from lmsweep.models.common import ImageBlock, ImageConv2d, Standardise


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
        return self.out(x.flatten(1))


class ConvNet(Chain):
    """Convolutions with ReLU and max-pooling, then dense layers with ReLU and dropout.

    With 5x5 convolutions of 32 and 64 and two dense layers of 512 it is the paper's MNIST network. Each
    hidden layer (`conv1`, `conv2`, ..., `fc1`, ...) is one child with all that belongs to it inside, so that
    layer sets mean what is passed on. `width` multiplies every number of channels and units; `pool` is the
    size of the pooling after each convolution, 1 for none.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        channels: Sequence[int],
        dense: Sequence[int],
        kernel_size: int,
        pool: Sequence[int],
        width: float = 1.0,
        dropout: float = 0.0,
        input_mean: Sequence[float] | None = None,
        input_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if len(pool) != len(channels):
            raise ValueError(f"pool has {len(pool)} sizes for {len(channels)} convolutions")
        before, height, breadth = input_shape
        self.standardise = Standardise(before, input_mean, input_std)
        convolutions = [f"conv{number}" for number in range(1, len(channels) + 1)]
        for name, count, size in zip(convolutions, channels, pool, strict=True):
            after = scaled(count, width)
            self.add_module(name, self._convolution(before, after, kernel_size, size, dropout))
            before, height, breadth = after, height // size, breadth // size
        if not height * breadth:
            raise ValueError(
                f"pool={list(pool)} leaves nothing of images of {input_shape[1]}x{input_shape[2]}"
            )
        before = before * height * breadth
        layers = [f"fc{number}" for number in range(1, len(dense) + 1)]
        for name, count in zip(layers, dense, strict=True):
            after = scaled(count, width)
            self.add_module(name, self._dense(before, after, dropout))
            before = after
        self.layer_names = (*convolutions, *layers)
        self.out = nn.Linear(before, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        """torch's own initialisation; the paper names none."""

    def _convolution(self, before: int, after: int, kernel: int, pool: int, _: float) -> nn.Sequential:
        # Pooling before ReLU is the same function with the same gradient, and leaves ReLU less to do.
        conv, relu = ImageConv2d(before, after, kernel, padding="same"), nn.ReLU(inplace=True)
        return ImageBlock(conv, nn.MaxPool2d(pool), relu) if pool > 1 else nn.Sequential(conv, relu)

    def _dense(self, before: int, after: int, dropout: float) -> nn.Sequential:
        relu = nn.ReLU(inplace=True)
        return nn.Sequential(nn.Flatten(), nn.Linear(before, after), relu, nn.Dropout(dropout))


class ReleasedConvNet(ConvNet):
    """The network of the authors' released TensorFlow code, which differs from the paper's description.

    Batch normalisation follows each convolution's pooling, the convolutions have no bias, dropout acts on
    them and not on the dense layer, there is one dense layer, and weights start Glorot-uniform with biases 0.
    """

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _convolution(self, before: int, after: int, kernel: int, pool: int, dropout: float) -> nn.Sequential:
        # TensorFlow's momentum 0.9 is the share that stays; torch's is the share that comes in.
        return ImageBlock(
            ImageConv2d(before, after, kernel, padding="same", bias=False),
            nn.MaxPool2d(pool),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.BatchNorm2d(after, eps=1e-5, momentum=0.1),
        )

    def _dense(self, before: int, after: int, _: float) -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(before, after), nn.ReLU(inplace=True))


def scaled(count: int, width: float) -> int:
    """A number of channels or units times the width factor, at least 1."""
    if width <= 0:
        raise ValueError(f"width={width} is not allowed: it must be a number > 0")
    return max(1, round(count * width))


class MLP(Chain):
    """Dense layers with ReLU and a linear output; three hidden ones make the 4-layer network of Fig. 1.

    Each hidden layer `fc1`, `fc2`, ... is one child with its activation inside.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        hidden: Sequence[int],
        dropout: float = 0.0,
        input_mean: Sequence[float] | None = None,
        input_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.standardise = Standardise(input_shape[0], input_mean, input_std)
        sizes = [math.prod(input_shape), *hidden]
        self.layer_names = tuple(f"fc{number}" for number in range(1, len(sizes)))
        for name, (before, after) in zip(self.layer_names, pairwise(sizes), strict=True):
            layer = nn.Sequential(nn.Flatten(), nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout))
            self.add_module(name, layer)
        self.out = nn.Linear(sizes[-1], num_classes)


class Linear(MLP):
    """A linear classifier, for which the margin is exact (the paper's "SVM as a Special Case")."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        input_mean: Sequence[float] | None = None,
        input_std: Sequence[float] | None = None,
    ) -> None:
        super().__init__(input_shape, num_classes, hidden=(), input_mean=input_mean, input_std=input_std)
