"""A network that breaks in training."""

from lmsweep.models import ConvNet


class Raising(ConvNet):
    def forward(self, x):
        if self.training:
            raise ArithmeticError("the network broke")
        return super().forward(x)
