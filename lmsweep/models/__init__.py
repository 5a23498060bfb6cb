"""The networks; each names its hidden layers in `layer_names`, so that layer sets read naturally."""

from lmsweep.models.cnn import ConvNet, ReleasedConvNet
from lmsweep.models.inception import InceptionV3
from lmsweep.models.mlp import MLP, Linear
from lmsweep.models.residual import CompactResNet, WideResNet

__all__ = ["MLP", "CompactResNet", "ConvNet", "InceptionV3", "Linear", "ReleasedConvNet", "WideResNet"]
