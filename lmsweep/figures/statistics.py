"""What the seeds of a cell say together: means with Student's t intervals, and verdicts on them.

`Evidence` has the numbers per seed that claims are held against.

Seeds are few, so the interval must know how little they say: a bootstrap over three seeds is their range,
which holds the mean three times in four. Methods are compared seed by seed: the same seed means the same
images, the same wrong labels and the same initial weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from lmsweep.figures.drawing.style import method_style

if TYPE_CHECKING:
    from lmsweep.figures.spec import FigureSpec

RULE = "Student's t"  # how intervals are made; records written before there was this word had a bootstrap
ENOUGH_SEEDS = 3  # with fewer, nothing is resolved and no band is drawn
# `not resolved`: the interval, or too few seeds, leave it open. `not run`: a number is missing.
Verdict = Literal["holds", "fails", "not resolved", "not run"]


def interval(values: Sequence[float] | np.ndarray, tries: int = 1) -> tuple[float, float]:
    """Student's 95% interval of the mean; one value has none (nan).

    Of `tries` intervals made together all hold their means with 95%: each is wider (Bonferroni).
    """
    y = np.asarray(values, dtype=float)
    if len(y) < 2:
        return float("nan"), float("nan")
    mean, error = float(y.mean()), float(y.std(ddof=1)) / math.sqrt(len(y))
    half = error * _quantile(0.025 / tries, len(y) - 1)
    return mean - half, mean + half


@cache
def _quantile(tail: float, degrees: int) -> float:
    return float(stats.t.isf(tail, degrees))


@dataclass(frozen=True)
class Comparison:
    """A number per seed, such as the difference of two methods: its mean and 95% interval."""

    what: str
    x: float | None  # None: over several x
    values: tuple[float, ...]
    tries: int = 1  # how many comparisons its interval has to be right with

    @classmethod
    def of(cls, what: str, values: pd.Series, x: float | None = None) -> "Comparison":
        """The comparison of one value per seed."""
        return cls(what, x, tuple(float(value) for value in values))

    @property
    def n(self) -> int:
        """How many seeds."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.values))

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return interval(self.values, self.tries)[0]

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return interval(self.values, self.tries)[1]

    def one_of(self, tries: int) -> "Comparison":
        """The same, with an interval for one of so many comparisons."""
        return replace(self, tries=self.tries * tries)

    def verdict(self, least: float = 0.0, most: float = math.inf) -> Verdict:
        """Whether the mean is between two bounds; above 0 without an effect it is once in forty times."""
        bounds = interval(self.values, self.tries)
        return verdict_between(self.n, *bounds, least, most, above=most == math.inf)


def verdict_between(
    n: int, low: float, high: float, least: float, most: float, *, above: bool = False
) -> Verdict:
    """Whether the interval of n values is between two bounds, or outside; few values resolve nothing.

    With `above` the lower bound is a threshold: the interval must be above it.
    """
    if n < ENOUGH_SEEDS:
        return "not resolved"
    if high < least or low > most:
        return "fails"
    enough = low > least if above else low >= least
    return "holds" if enough and high <= most else "not resolved"


def best_of(candidates: Sequence[Comparison], threshold: float = 0.0) -> Comparison:
    """The comparison that decides whether one of the candidates is above the threshold, or none.

    Which one is best is seen in the same numbers, so intervals are corrected for the choice: the first step
    of Holm's method. That none is above is only known when all of them are below.
    """
    tried = [candidate.one_of(len(candidates)) for candidate in candidates]
    return max(tried, key=lambda c: (c.verdict(threshold) == "holds", np.nan_to_num(c.high, nan=c.mean)))


def verdict_of_all(found: Sequence[Comparison], least: float, most: float = math.inf) -> Verdict:
    """The verdict on a claim of several parts: all must hold, and one that fails decides.

    That all hold needs no correction (an intersection-union test: each part has to pass by itself). One
    failure among many comes by chance, so it counts only if it is left when the intervals are corrected for
    their number (Holm's first step).
    """
    if any(c.one_of(len(found)).verdict(least, most) == "fails" for c in found):
        return "fails"
    parts = {c.verdict(least, most) for c in found}
    return "holds" if parts == {"holds"} else "not resolved"


def slopes(differences: pd.DataFrame) -> pd.Series:
    """Per seed (row) the least-squares slope of the difference over the rank of x (columns, ascending)."""
    ranks = np.arange(differences.shape[1]) - (differences.shape[1] - 1) / 2
    return pd.Series(differences.to_numpy() @ ranks / (ranks @ ranks), index=differences.index)


def x_key(x: float) -> float:
    """The same number for 0.1 + 0.2 and 0.3: one place on an axis."""
    return float(f"{x:.9g}")


Side = str | list[str]  # a method, or several methods of which the best counts


# Cells of the grid: panel, method, x, and the reason why there may be no number.
Cells = Sequence[Mapping[str, Any]]


class NotRunError(Exception):
    """What a claim needs is missing; the message says what."""


class Evidence:
    """A figure and its selected points."""

    def __init__(self, figure: "FigureSpec", points: pd.DataFrame, expected: Cells = ()) -> None:
        """`expected` are the cells of the grid, so that what is missing is known."""
        self._figure = figure
        self._expected = {(cell["panel"], cell["method"], x_key(cell["x"])) for cell in expected}
        finite = points[points["y"].notna()].sort_values("seed")
        if finite.duplicated(["panel", "method", "x", "seed"]).any():
            raise ValueError("a cell has a seed twice; select a setting first")
        self._y = {
            (str(key[0]), str(key[1]), x_key(cell["x"].iloc[0])): cell.set_index("seed")["y"].astype(float)
            for key, cell in finite.groupby(["panel", "method", "x"])
        }

    def units(self, panel: str) -> tuple[str, str]:
        """The units of a panel's x and y."""
        axes = self._figure.panel(panel)
        return axes.x.unit, axes.y.unit

    def places(
        self, at: str | list[float], sides: Sequence[tuple[str, Side]]
    ) -> tuple[list[float], set[float]]:
        """The x that `at` means, ascending, and with `all` the x that not every (panel, side) has."""
        if isinstance(at, list):
            return sorted(at), set()
        shared = set.intersection(*(self._xs(panel, side) for panel, side in sides))
        if not shared:
            raise NotRunError("There is no x at which all of the methods have a value.")
        each = [(panel, method) for panel, side in sides for method in methods_of(side)]
        every = {x for panel, method, x in (*self._y, *self._expected) if (panel, method) in each}
        if at != "all":
            return [min(every) if at == "lowest" else max(every)], set()
        return sorted(shared), every - shared

    def at(self, panel: str, method: str, x: float) -> pd.Series:
        """A method's y per seed at x."""
        y = self._y.get((panel, method, x_key(x)))
        if y is None:
            raise NotRunError(f"{method_style(method).label} has no value at x = {x:g} in panel {panel}.")
        return y

    def value(self, panel: str, method: str, x: float, less: float = 0.0) -> Comparison:
        """A method's y at x, less what another work has published."""
        return Comparison.of(method_style(method).label, self.at(panel, method, x) - less, x)

    def difference(
        self, panels: Sequence[str], left: str, right: str, x: float, right_x: float | None = None
    ) -> tuple[str, pd.Series]:
        """What is compared, and left - right for every seed that both have; `right_x` where it is not x."""
        what = f"{method_style(left).label} against {method_style(right).label}"
        rival = self.at(panels[1], right, x if right_x is None else right_x)
        return what, common_seeds(what, self.at(panels[0], left, x) - rival)

    def next_x(self, panel: str, side: Side, x: float) -> float | None:
        """The first x from this one on at which a side has points; None where it has none."""
        return min((other for other in self._xs(panel, side) if other >= x_key(x)), default=None)

    def _xs(self, panel: str, side: Side) -> set[float]:
        """The x at which all methods of a side have points."""
        xs = [{x for p, m, x in self._y if (p, m) == (panel, method)} for method in methods_of(side)]
        return set.intersection(*xs)


def methods_of(side: Side) -> list[str]:
    """The methods of a side."""
    return [side] if isinstance(side, str) else side


def common_seeds(what: str, values: pd.Series) -> pd.Series:
    """The seeds that have a value; NotRunError when no seed has."""
    common = values.dropna()
    if common.empty:
        raise NotRunError(f"{what}: they have no seed in common.")
    return common
