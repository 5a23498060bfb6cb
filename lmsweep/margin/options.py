"""What the options of the loss may be, said once for the function and the callback."""

import math
from collections.abc import Sequence
from typing import Any

from lmsweep.margin.norms import dual_exponent

_CHOICES = {
    "aggregation": ("max", "sum"),
    "score": ("logit", "softmax"),
    "layer_reduction": ("sum", "mean"),
    "reduction": ("mean", "sum", "none"),
    "candidates": ("score", "distance"),
    "batch_norm": ("batch", "per_sample"),
}
_POSITIVE = ("gamma", "epsilon", "clip", "weight", "layer_weights")
_OPTIONAL = ("clip", "layer_weights", "top_k")


def check_options(**options: Any) -> None:
    """Raise ValueError naming the first option that is not allowed, and what is."""
    for name, value in options.items():
        if value is None and name in _OPTIONAL:
            continue
        if name == "norm":
            dual_exponent(value)
        elif name in _CHOICES and value not in _CHOICES[name]:
            allowed = " or ".join(f'"{choice}"' for choice in _CHOICES[name])
            raise ValueError(f"{name}={value!r} is not allowed: it must be {allowed}")
        elif name in _POSITIVE:
            values = value if isinstance(value, Sequence) else [value]
            if not values or not all(0 < v < math.inf for v in values):
                raise ValueError(f"{name}={value!r} is not allowed: it must be > 0")
        elif name == "top_k" and value < 1:
            raise ValueError(f"top_k={value} is not allowed: it must be at least 1, or None for every class")
