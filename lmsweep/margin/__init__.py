"""Large-margin loss for deep networks (Elsayed et al., 2018), usable alone in any PyTorch project."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmsweep.margin.callback import MarginLoss
    from lmsweep.margin.distance import margin_distance
    from lmsweep.margin.loss import margin_loss

__all__ = ["MarginLoss", "margin_distance", "margin_loss"]

_HOME = {"MarginLoss": "callback", "margin_distance": "distance", "margin_loss": "loss"}


def __getattr__(name: str) -> Any:
    # Imported when asked for: the configuration reads `lmsweep.margin.options` without importing torch.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
