"""Inception v3 (Szegedy et al., 2015), the paper's network for ImageNet: torchvision's, at any size."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.inception import (
    BasicConv2d,
    Inception3,
    InceptionA,
    InceptionAux,
    InceptionB,
    InceptionC,
    InceptionD,
    InceptionE,
)

from lmsweep.models.common import Standardise

SMALLEST = 75  # below it the last blocks have nothing left to pool
AUXILIARY_MAP = 17  # height of the map that the auxiliary head was made for, at 299x299


class InceptionV3(Inception3):
    """torchvision's Inception v3; in training its output is (logits, auxiliary logits).

    Args:
        width: factor on all numbers of channels, a multiple of 1/16, for networks that train on a CPU.
        size: images are scaled to this height and width first, inside the network; null takes them as they
            are, which must be at least 75x75. Gray images are repeated in all three channels.
        aux_weight: of the criterion on the auxiliary head, in the training loss.

    The layers keep torchvision's names, from `Conv2d_1a_3x3` to `Mixed_7c`.
    """

    layer_names = (
        "Conv2d_1a_3x3",
        "Conv2d_2a_3x3",
        "Conv2d_2b_3x3",
        "Conv2d_3b_1x1",
        "Conv2d_4a_3x3",
        *(f"Mixed_5{letter}" for letter in "bcd"),
        *(f"Mixed_6{letter}" for letter in "abcde"),
        *(f"Mixed_7{letter}" for letter in "abc"),
    )

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        aux_weight: float,
        width: float = 1.0,
        size: int | None = None,
        dropout: float = 0.5,
        input_mean: Sequence[float] | None = None,
        input_std: Sequence[float] | None = None,
    ) -> None:
        if width <= 0 or width * 16 % 1:
            raise ValueError(f"width={width} is not a multiple of 1/16")
        if (size or min(input_shape[1:])) < SMALLEST:
            raise ValueError(
                f"images must be at least {SMALLEST}x{SMALLEST}: set model.size={SMALLEST} or more"
            )
        convolution = partial(_scaled_convolution, width)
        kinds = (InceptionA, InceptionB, InceptionC, InceptionD, InceptionE)
        blocks: list[Callable[..., nn.Module]] = [
            convolution,
            *(partial(kind, conv_block=convolution) for kind in kinds),
            partial(_AuxiliaryHead, width=width, conv_block=convolution),
        ]
        super().__init__(num_classes, inception_blocks=blocks, init_weights=True, dropout=dropout)
        if width != 1:
            self.fc = nn.Linear(_scaled(2048, width), num_classes)
            nn.init.trunc_normal_(self.fc.weight, std=0.1)
        self.standardise = Standardise(input_shape[0], input_mean, input_std)
        self.aux_weight = aux_weight
        self.size = size

    def forward(self, x: Tensor) -> Any:
        """Logits of a batch of images; in training a pair with those of the auxiliary head."""
        x = self.standardise(x)
        if x.shape[1] == 1:
            x = x.expand(-1, 3, -1, -1)
        if self.size is not None and x.shape[-2:] != (self.size, self.size):
            x = F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        return super().forward(x)


class _AuxiliaryHead(InceptionAux):
    """torchvision's head, which also takes the smaller maps of smaller images."""

    def __init__(self, in_channels: int, num_classes: int, *, width: float, conv_block: Any) -> None:
        super().__init__(in_channels, num_classes, conv_block=conv_block)
        if width != 1:
            self.fc = nn.Linear(_scaled(768, width), num_classes)
            self.fc.stddev = 0.001  # type: ignore[assignment] # torchvision's, read by its initialisation

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) >= AUXILIARY_MAP:
            return super().forward(x)
        # Average pooling by 5 leaves less than the 5x5 map that the next convolution needs.
        x = self.conv1(self.conv0(F.adaptive_avg_pool2d(x, 5)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def _scaled(channels: int, width: float) -> int:
    return channels if channels == 3 else int(channels * width)  # 3 is the image


def _scaled_convolution(width: float, before: int, after: int, **arguments: Any) -> BasicConv2d:
    return BasicConv2d(_scaled(before, width), _scaled(after, width), **arguments)
