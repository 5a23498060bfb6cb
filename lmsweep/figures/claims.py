"""The kinds of claims. A kind is one class: its keys, what it uses of a figure, and how it is judged.

To add a kind, write a subclass of Claim with a `kind` of its own here; the figures of
sweeps/ can use it at once.
"""

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from math import inf
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from lmsweep.config.fields import Name, Node, NonNegative
from lmsweep.figures.statistics import (
    ENOUGH_SEEDS,
    Comparison,
    Evidence,
    NotRunError,
    Side,
    Verdict,
    best_of,
    common_seeds,
    methods_of,
    slopes,
    verdict_between,
    verdict_of_all,
)
from lmsweep.figures.words import amount, place, weakest, with_interval
from lmsweep.provenance import ROOT

# What `make bench` measured side by side, with machine and commit: wall times of sweeps make no honest ratio.
COSTS = ROOT / "results" / "bench.json"
KINDS: dict[str, type["Claim"]] = {}  # by the word that sweeps/ use


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


# Each description completes the sentence "it must be ..." in the error a user sees.
Best = Annotated[
    Name | Annotated[list[Name], Field(min_length=1)],
    Field(description="a method, or a list of methods for the best of them"),
]
Pairs = Annotated[
    list[Annotated[list[Best], Field(min_length=2, max_length=2)]],
    Field(min_length=1, description="a list of [left, right], each a method or a list of them"),
]
PlainPairs = Annotated[
    list[Annotated[list[Name], Field(min_length=2, max_length=2)]],
    Field(min_length=1, description="a list of [left, right], each a method"),
]
At = Annotated[
    Literal["all", "lowest", "highest"] | Annotated[list[float], Field(min_length=1)],
    BeforeValidator(_as_list),
    Field(description="all, lowest, highest, a number, or a list of numbers"),
]
Paper = Annotated[str | float, Field(description="a number, or the paper's words")]
Number = Annotated[float, Field(description="a number")]
OtherPanel = Annotated[Name | None, Field(description="the name of a panel")]
Uses = Iterator[tuple[str, Side]]


class Finding(NamedTuple):
    """A verdict, our numbers in words, and how many seeds are behind it."""

    verdict: Verdict
    ours: str
    n: int


class Claim(Node):
    """What all kinds have in common: the paper's statement, and where the paper makes it."""

    kind: str
    id: Annotated[str, Field(pattern=r"^\w+$", description="a name of letters, digits and underscores")]
    says: Annotated[str, Field(min_length=1, description="the paper's statement in one sentence")]
    where: Annotated[str, Field(min_length=1, description="the place in the paper")]
    paper: Paper = ""
    # Whether a number of the paper is compared, and not only which of two methods is ahead.
    compares_numbers: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a kind; a class without a `kind` of its own is only a base of others."""
        KINDS.update(dict.fromkeys(get_args(cls.model_fields["kind"].annotation), cls))

    @property
    def needs_the_papers_data(self) -> bool:
        """Whether other data than the paper's say nothing about the claim."""
        return self.compares_numbers

    def uses(self) -> Uses:
        """Panel and method of everything that the claim needs."""
        return iter(())

    def papers_number(self, evidence: Evidence) -> str:
        """The paper's side of a table of claims."""
        return f"{self.paper:g}" if isinstance(self.paper, float) else self.paper

    def judge(self, evidence: Evidence) -> Finding:
        """Hold the claim against our numbers; NotRunError when one is missing."""
        raise NotImplementedError


class ValueClaim(Claim):
    """A method has the paper's value at x."""

    kind: Literal["value"]
    panel: Name
    method: Best
    at: At
    paper: Number
    tolerance: NonNegative
    compares_numbers = True

    def uses(self) -> Uses:
        yield self.panel, self.method

    def papers_number(self, evidence: Evidence) -> str:
        return amount(self.paper, evidence.units(self.panel)[1])

    def judge(self, evidence: Evidence) -> Finding:
        x_unit, y_unit = evidence.units(self.panel)
        xs, _ = evidence.places(self.at, [(self.panel, self.method)])
        found = []
        for x in xs:
            tried = [evidence.value(self.panel, method, x) for method in methods_of(self.method)]
            # The best one is seen in the same numbers: its interval is corrected for the choice.
            found.append(max(tried, key=lambda c: c.mean).one_of(len(tried)))
        said = [f"{c.what} {with_interval(c, y_unit)}{place(c.x, x_unit)}" for c in found]
        verdict = verdict_of_all(found, self.paper - self.tolerance, self.paper + self.tolerance)
        return _finding(verdict, "; ".join(said), found)


class _Comparing(Claim):
    """A base of kinds with comparisons between methods: all of them must be above a threshold."""

    panel: Name

    @property
    def threshold(self) -> float:
        return 0.0

    @property
    def per(self) -> str:
        """What a compared number is counted by, such as a step on the x axis."""
        return ""

    def compared(self, evidence: Evidence, missing: set[float]) -> Iterator[Comparison]:
        """Every comparison; `missing` gets the x of the grid at which something cannot be compared."""
        raise NotImplementedError

    def judge(self, evidence: Evidence) -> Finding:
        missing: set[float] = set()
        found, by = list(self.compared(evidence, missing)), self.threshold
        x_unit, y_unit = evidence.units(self.panel)
        verdict = verdict_of_all(found, by)
        ours = weakest(found, by, x_unit, y_unit, self.per)
        if verdict != "fails" and any(comparison.verdict(by) == "fails" for comparison in found):
            ours += f"; of {len(found)} comparisons one may fail so far by chance"
        if missing:
            ours += "; missing" + ",".join(place(x, x_unit) for x in sorted(missing))
            if verdict == "holds":
                verdict = "not resolved"  # nobody knows what the missing cells would say
        return _finding(verdict, ours, found)


def _finding(verdict: Verdict, ours: str, found: Sequence[Comparison]) -> Finding:
    n = min(comparison.n for comparison in found)
    if n < ENOUGH_SEEDS and verdict == "not resolved":
        ours += "; too few seeds"
    return Finding(verdict, ours, n)


class AboveClaim(_Comparing):
    """Every method is above the published value of another work, at each of the points [x, value]."""

    kind: Literal["above"]
    methods: Annotated[list[Best], Field(min_length=1, description="a list of methods")]
    points: Annotated[list[list[float]], Field(min_length=1, description="a list of [x, value]")]
    compares_numbers = True

    def uses(self) -> Uses:
        yield from ((self.panel, method) for method in self.methods)

    def compared(self, evidence: Evidence, missing: set[float]) -> Iterator[Comparison]:
        for side, (x, published) in product(self.methods, self.points):
            yield best_of([evidence.value(self.panel, m, x, less=published) for m in methods_of(side)])


class _PairsClaim(_Comparing):
    pairs: Sequence[Sequence[Side]]
    at: At = "all"

    @model_validator(mode="before")
    @classmethod
    def _one_pair(cls, value: Any) -> Any:
        """`left` and `right` are short for the only pair."""
        if isinstance(value, dict) and "pairs" not in value and {"left", "right"} <= value.keys():
            rest = {key: item for key, item in value.items() if key not in ("left", "right")}
            return {**rest, "pairs": [[value["left"], value["right"]]]}
        return value

    @property
    def panels(self) -> tuple[str, str]:
        """Where the left and the right methods of all pairs are."""
        return self.panel, self.panel

    def uses(self) -> Uses:
        for pair in self.pairs:
            yield from zip(self.panels, pair, strict=True)


class GreaterClaim(_PairsClaim):
    """The left method of every pair is better than the right one by more than `by`."""

    kind: Literal["greater"]
    pairs: Pairs
    by: Number = 0.0
    aggregate: Annotated[Literal["mean"] | None, Field(description="mean, or null for each x")] = None
    right_panel: OtherPanel = None
    # `next`: the right method is read at the first x from the left one's on, as far as it goes. So a curve
    # over images that were chosen ten at a time has at least as many images as the method it is beside.
    right_x: Annotated[Literal["same", "next"], Field(description="same or next")] = "same"

    @property
    def needs_the_papers_data(self) -> bool:
        return self.by > 0  # below 0 it is a tolerance of ours

    @property
    def panels(self) -> tuple[str, str]:
        return self.panel, self.right_panel or self.panel

    @property
    def threshold(self) -> float:
        return self.by

    def compared(self, evidence: Evidence, missing: set[float]) -> Iterator[Comparison]:
        for left, right in self.pairs:
            xs, absent = self._places(evidence, left, right)
            missing |= absent
            for rival in methods_of(right):  # to beat the best of several is to beat each of them
                leads = [self._leads(evidence, method, rival, xs) for method in methods_of(left)]
                yield from (best_of(candidates, self.by) for candidates in zip(*leads, strict=True))

    def _places(self, evidence: Evidence, left: Side, right: Side) -> tuple[list[float], set[float]]:
        """Where a pair is compared, and where it should be but cannot."""
        if self.right_x == "same":
            return evidence.places(self.at, list(zip(self.panels, (left, right), strict=True)))
        xs, absent = evidence.places(self.at, [(self.panels[0], left)])
        reached = [x for x in xs if evidence.next_x(self.panels[1], right, x) is not None]
        if not reached:
            raise NotRunError("The right method has no value at or after any x of the left one.")
        return reached, {x for x in absent if evidence.next_x(self.panels[1], right, x) is not None}

    def _leads(self, evidence: Evidence, left: str, right: str, xs: Sequence[float]) -> list[Comparison]:
        """The lead of one method over another at each x, or on average over all of them."""
        beside = {x: evidence.next_x(self.panels[1], right, x) if self.right_x == "next" else x for x in xs}
        pairs = [evidence.difference(self.panels, left, right, x, beside[x]) for x in xs]
        if self.aggregate is None:
            return [Comparison.of(what, y, x) for (what, y), x in zip(pairs, xs, strict=True)]
        what, frame = pairs[0][0], pd.concat([y for _, y in pairs], axis=1)
        means = common_seeds(what, frame.mean(axis=1, skipna=False))
        return [Comparison.of(what, means, xs[0] if len(xs) == 1 else None)]


class TrendClaim(_PairsClaim):
    """The lead of left over right grows toward low or high x."""

    kind: Literal["trend"]
    pairs: PlainPairs
    toward: Annotated[Literal["low", "high"], Field(description="low or high")]

    @property
    def per(self) -> str:
        return f" per step toward {self.toward} x"

    def compared(self, evidence: Evidence, missing: set[float]) -> Iterator[Comparison]:
        for left, right in self.pairs:
            xs, absent = evidence.places(self.at, [(self.panel, left), (self.panel, right)])
            missing |= absent
            if len(xs) < 2:
                raise NotRunError("A trend needs two or more x that both methods have.")
            leads = [evidence.difference(self.panels, left, right, x) for x in xs]
            what, frame = leads[0][0], pd.concat([y for _, y in leads], axis=1).dropna()
            if frame.empty:
                raise NotRunError(f"{what}: no seed has every x.")
            slope = slopes(frame)
            yield Comparison.of(what, slope if self.toward == "high" else -slope)


class GapClaim(_Comparing):
    """The lead of left over right is smaller than that of left2 over right2."""

    kind: Literal["gap"]
    left: Name
    right: Name
    panel2: OtherPanel = None
    left2: Name
    right2: Name
    at: At = "all"

    def uses(self) -> Uses:
        yield from ((self.panel, side) for side in (self.left, self.right))
        yield from ((self.panel2 or self.panel, side) for side in (self.left2, self.right2))

    def compared(self, evidence: Evidence, missing: set[float]) -> Iterator[Comparison]:
        one, two = self.panel, self.panel2 or self.panel
        xs, absent = evidence.places(self.at, list(self.uses()))
        missing |= absent
        for x in xs:
            what, smaller = evidence.difference((one, one), self.left, self.right, x)
            what2, larger = evidence.difference((two, two), self.left2, self.right2, x)
            both = f"the lead of {what2} less that of {what}"
            yield Comparison.of(both, common_seeds(both, larger - smaller), x)


class RatioClaim(Claim):
    """A cost that `make bench` measured, alone or in times of another, is between `low` and `high`."""

    kind: Literal["ratio"]
    bench: Annotated[str, Field(min_length=1, description="a row of results/bench.json")]
    over: Annotated[str | None, Field(description="another row of results/bench.json, or null")] = None
    low: NonNegative
    high: Annotated[float | None, Field(ge=0, description="a number >= 0, or null")] = None

    def papers_number(self, evidence: Evidence) -> str:
        bounds = f"{self.low:g} to {self.high:g}" if self.high is not None else f"{self.low:g} or more"
        return super().papers_number(evidence) or bounds

    def judge(self, evidence: Evidence) -> Finding:
        """The whole interval must be between the bounds, or outside of them."""
        rows = json.loads(COSTS.read_text()) if COSTS.exists() else {}
        for name in (self.bench, self.over or self.bench):
            if name not in rows:
                raise NotRunError(f"results/bench.json has no row {name}; measure it with `make bench`.")
        one = rows[self.bench]
        # Without another row, in times of 1; the interval of a quotient is at most as wide as this.
        other = rows[self.over] if self.over else {**one, "value": 1.0, "low": 1.0, "high": 1.0}
        value = one["value"] / other["value"]
        low, high = one["low"] / other["high"], one["high"] / other["low"]
        n = min(int(one["repeats"]), int(other["repeats"]))
        verdict = verdict_between(n, low, high, self.low, inf if self.high is None else self.high)
        machine = one["environment"]["machine"]
        where = ", ".join(machine["gpus"]) or machine["cpu"]
        return Finding(verdict, f"{value:.2f} times [{low:.2f}, {high:.2f}], by make bench on {where}", n)


class StatementClaim(Claim):
    """Something that this figure's numbers cannot decide."""

    kind: Literal["statement"]
    reason: Annotated[str, Field(min_length=1, description="why this figure cannot check it")]

    def judge(self, evidence: Evidence) -> Finding:
        raise NotRunError(self.reason)


if TYPE_CHECKING:
    AnyClaim = Claim
else:
    AnyClaim = Annotated[reduce(or_, KINDS.values()), Field(discriminator="kind")]
