"""Networks without convolutions: a linear classifier, and a stack of dense layers."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from lmsweep.models.common import Chain, Standardise


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
