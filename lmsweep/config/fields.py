"""What a single value of a configuration can be; each description completes "it must be ..." in an error."""

import math
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator


def _norm(value: Any) -> float:
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise ValueError
    return float(value)


def _gamma(value: Any) -> float | list[float]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError
    for v in values:
        if isinstance(v, bool) or not isinstance(v, int | float) or not 0 < v < math.inf:
            raise ValueError
    return [float(v) for v in values] if isinstance(value, list) else float(value)


def _layers(value: Any) -> str | list[str]:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError
    return value if isinstance(value, list) else str(value)


Norm = Annotated[
    float,
    PlainValidator(_norm),
    PlainSerializer(lambda p: "inf" if math.isinf(p) else p),
    Field(description="a number >= 1, or inf"),
]
Gamma = Annotated[
    Any, PlainValidator(_gamma), Field(description="a number > 0, or a list of them, one per layer")
]
Layers = Annotated[
    Any,
    PlainValidator(_layers),
    Field(description="input, output, hidden, all, everything, even:N, a module's name or a glob, or a list"),
]
Positive = Annotated[float, Field(gt=0, description="a number > 0")]
NonNegative = Annotated[float, Field(ge=0, description="a number >= 0")]
Count = Annotated[int, Field(ge=1, description="a whole number >= 1")]
Whole = Annotated[int, Field(ge=0, description="a whole number >= 0")]
Unit = Annotated[float, Field(ge=0, le=1, description="a number in [0, 1]")]
Flag = Annotated[bool, Field(description="true or false")]
Name = Annotated[str, Field(min_length=1, description="a name")]


class Node(BaseModel):
    """A part of the configuration: no unknown keys, no silent conversion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Component(Node):
    """An object of any importable class or function: `_target_` and its keyword arguments."""

    model_config = ConfigDict(extra="allow")

    target: Annotated[
        str, Field(alias="_target_", pattern=r"^\w+(\.\w+)+$", description="package.module.name")
    ]

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments that are not part of the schema."""
        return dict(self.model_extra or {})
