"""Large-margin loss for deep networks (Elsayed et al., 2018), usable alone in any PyTorch project."""

from lmsweep.margin.callback import MarginLoss
from lmsweep.margin.distance import margin_distance
from lmsweep.margin.loss import margin_loss

__all__ = ["MarginLoss", "margin_distance", "margin_loss"]
