"""Wide residual networks (Zagoruyko & Komodakis, 2016), the paper's networks for CIFAR-10."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.models.common import Standardise, added


class WideResNet(nn.Module):
    """Pre-activation residual network of `depth` 6n + 4 convolutions, `width` times as wide as usual.

    The depth counts the first convolution, 2n in each of three groups, and three 1x1 shortcuts: 58 are
    1 + 54 + 3. `stride` is the first convolution's: 2 halves every map, for a quarter of the work.

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
        logits: Tensor = self.out(F.relu(self.norm(x)).mean((2, 3)))
        return logits


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
