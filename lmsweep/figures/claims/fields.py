"""What the keys of a claim can be; each description completes "it must be ..." in the error a user sees."""

import math
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from lmsweep.config.fields import Name

Side = str | list[str]  # a method, or several methods of which the best counts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _side(value: Any) -> Side:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError
    return value if isinstance(value, list) else str(value)


def _pairs(value: Any) -> list[tuple[Side, Side]]:
    if not isinstance(value, list) or not value:
        raise ValueError
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ValueError
    return [(_side(left), _side(right)) for left, right in value]


def _at(value: Any) -> str | list[float]:
    if value in ("all", "lowest", "highest"):
        return str(value)
    values = value if isinstance(value, list) else [value]
    if not values or not all(map(_is_number, values)):
        raise ValueError
    return [float(v) for v in values]


def _paper(value: Any) -> str | float:
    if not (isinstance(value, str) or _is_number(value)):
        raise ValueError
    return value if isinstance(value, str) else float(value)


Best = Annotated[
    Side,
    PlainValidator(_side),
    Field(description="a method, or a list of methods for the best of them"),
]
Pairs = Annotated[
    list[tuple[Side, Side]],
    PlainValidator(_pairs),
    Field(description="a list of [left, right], each a method or a list of them"),
]
At = Annotated[
    str | list[float],
    PlainValidator(_at),
    Field(description="all, lowest, highest, a number, or a list of numbers"),
]
Paper = Annotated[str | float, PlainValidator(_paper), Field(description="a number, or the paper's words")]
Number = Annotated[float, Field(description="a number")]
OtherPanel = Annotated[Name | None, Field(description="the name of a panel")]
