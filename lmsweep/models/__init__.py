"""The networks; each names its hidden layers in `layer_names`, so that layer sets read naturally."""

from lmsweep.models.chain import MLP, ConvNet, Linear, ReleasedConvNet
from lmsweep.models.inception import InceptionV3
from lmsweep.models.residual import CompactResNet, WideResNet

__all__ = ["MLP", "CompactResNet", "ConvNet", "InceptionV3", "Linear", "ReleasedConvNet", "WideResNet"]
