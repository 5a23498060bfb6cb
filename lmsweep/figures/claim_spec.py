"""The schema of a claim: one sentence of the paper, and how to check it against a figure's numbers."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from lmsweep.config.fields import Name, Node, NonNegative

Side = str | list[str]  # a method, or several: the best of them


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
    Any, PlainValidator(_side), Field(description="a method, or a list of methods for the best of them")
]
Pairs = Annotated[
    Any, PlainValidator(_pairs), Field(description="a list of [left, right], each a method or a list of them")
]
At = Annotated[
    Any, PlainValidator(_at), Field(description="all, lowest, highest, a number, or a list of numbers")
]
Paper = Annotated[Any, PlainValidator(_paper), Field(description="a number, or the paper's words")]
Number = Annotated[float, Field(description="a number")]


class Claim(Node):
    """What every claim has."""

    id: Annotated[str, Field(pattern=r"^\w+$", description="a name of letters, digits and underscores")]
    says: Annotated[str, Field(min_length=1, description="the paper's statement in one sentence")]
    where: Annotated[str, Field(min_length=1, description="the place in the paper")]
    paper: Paper = ""

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """Panel (None: any) and method of everything that the claim needs."""
        return iter(())


class ValueClaim(Claim):
    """A method has the paper's value at x."""

    kind: Literal["value"]
    panel: Name
    method: Best
    at: At
    paper: Number
    tolerance: NonNegative

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """The method."""
        yield self.panel, self.method


class AboveClaim(Claim):
    """Every method is above the published value of another work, at each of the points [x, value]."""

    kind: Literal["above"]
    panel: Name
    methods: Annotated[list[Best], Field(min_length=1, description="a list of methods")]
    points: Annotated[list[list[float]], Field(min_length=1, description="a list of [x, value]")]

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """The methods."""
        yield from ((self.panel, method) for method in self.methods)


class _PairsClaim(Claim):
    panel: Name
    pairs: Pairs
    at: At = "all"

    @model_validator(mode="before")
    @classmethod
    def _one_pair(cls, value: Any) -> Any:
        """`left` and `right` are short for the only pair."""
        if isinstance(value, dict) and "pairs" not in value and {"left", "right"} <= value.keys():
            rest = {key: item for key, item in value.items() if key not in ("left", "right")}
            return {**rest, "pairs": [[value["left"], value["right"]]]}
        return value


class GreaterClaim(_PairsClaim):
    """The left method of every pair is better than the right one by more than `by`."""

    kind: Literal["greater"]
    by: Number = 0.0
    aggregate: Annotated[Literal["mean"] | None, Field(description="mean, or null for each x")] = None
    left_panel: Name | None = Field(None, description="the name of a panel")
    right_panel: Name | None = Field(None, description="the name of a panel")

    @property
    def panels(self) -> tuple[str, str]:
        """Where the left and the right methods of all pairs are."""
        return self.left_panel or self.panel, self.right_panel or self.panel

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """Both sides of every pair."""
        for pair in self.pairs:
            yield from zip(self.panels, pair, strict=True)


class TrendClaim(_PairsClaim):
    """The lead of left over right grows toward low or high x."""

    kind: Literal["trend"]
    toward: Annotated[Literal["low", "high"], Field(description="low or high")]

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """Both sides of every pair."""
        for pair in self.pairs:
            yield from ((self.panel, side) for side in pair)


class GapClaim(Claim):
    """The lead of left over right is smaller than that of left2 over right2."""

    kind: Literal["gap"]
    panel: Name
    left: Best
    right: Best
    panel2: Name | None = Field(None, description="the name of a panel")
    left2: Best
    right2: Best
    at: At = "all"

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """All four."""
        yield from ((self.panel, side) for side in (self.left, self.right))
        yield from ((self.panel2 or self.panel, side) for side in (self.left2, self.right2))


class RatioClaim(Claim):
    """A step of left costs between `low` and `high` steps of right."""

    kind: Literal["ratio"]
    left: Name
    right: Name
    low: NonNegative
    high: NonNegative

    def uses(self) -> Iterator[tuple[str | None, Side]]:
        """Two methods of any panel."""
        yield from ((None, side) for side in (self.left, self.right))


class StatementClaim(Claim):
    """Something that this figure's numbers cannot decide."""

    kind: Literal["statement"]
    reason: Annotated[str, Field(min_length=1, description="why this figure cannot check it")]


AnyClaim = ValueClaim | AboveClaim | GreaterClaim | TrendClaim | GapClaim | RatioClaim | StatementClaim
CLAIM_KINDS: dict[str, type[Claim]] = {
    "value": ValueClaim,
    "above": AboveClaim,
    "greater": GreaterClaim,
    "trend": TrendClaim,
    "gap": GapClaim,
    "ratio": RatioClaim,
    "statement": StatementClaim,
}
