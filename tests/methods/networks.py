"""Networks that do not fit every method."""

from torch import Tensor, nn


class WithoutLinear(nn.Module):
    """Logits by a convolution over the whole image."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.out = nn.Conv2d(input_shape[0], num_classes, input_shape[1])

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x).flatten(1)


class Doubled(nn.Module):
    """Logits that are twice what the last linear layer gives."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(input_shape[1] * input_shape[2], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.out(x.flatten(1))


class TwoHeads(nn.Module):
    """In training it gives the logits of two linear layers, of which the second is auxiliary."""

    aux_weight = 0.3

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        pixels = input_shape[1] * input_shape[2]
        self.auxiliary, self.out = nn.Linear(pixels, num_classes), nn.Linear(pixels, num_classes)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        logits = self.out(x.flatten(1))
        return (logits, self.auxiliary(x.flatten(1))) if self.training else logits
