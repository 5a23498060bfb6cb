"""A network that fails in one of the processes that train it."""

import torch.distributed as dist
from torch import Tensor

from lmsweep.models.chain import ConvNet


class FailingNet(ConvNet):
    """`fails` is the rank that it fails on, -1 for none."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, fails: int = -1) -> None:
        super().__init__(input_shape, num_classes, channels=(4, 8), dense=(16,), kernel_size=3, pool=(2, 2))
        self.fails = fails

    def forward(self, x: Tensor) -> Tensor:
        if self.training and dist.is_initialized() and dist.get_rank() == self.fails:
            raise ArithmeticError("on purpose")
        return super().forward(x)
