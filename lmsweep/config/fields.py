"""What a single value of a configuration can be; each description completes "it must be ..." in an error."""

import math
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, create_model

from lmsweep.margin import options


def _field(allowed: options.Allowed) -> Any:
    def read(value: Any) -> Any:
        try:
            return allowed.read(value)
        except TypeError:  # which pydantic does not take for an answer
            raise ValueError from None

    return Annotated[
        Any,
        PlainValidator(read),
        PlainSerializer(lambda value: "inf" if value == math.inf else value),  # JSON has no infinity
        Field(description=allowed.words.replace("None", "null")),
    ]


Norm = _field(options.NORM)
Layers = _field(options.LAYERS)
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


def node_of(declaration: Any) -> Any:
    """A node with the options of a class of `lmsweep.margin.options`; their values come from conf/."""
    fields: dict[str, Any] = {
        name: (_field(allowed), ...) for name, (_, allowed) in options.declared(declaration).items()
    }
    return create_model(declaration.__name__, __base__=Node, **fields)


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
