"""The networks; each names its hidden layers in `layer_names`, so that layer sets read naturally."""

from lmsweep.models.cnn import DigitsCNN

__all__ = ["DigitsCNN"]
