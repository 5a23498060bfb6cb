"""What the seeds of a cell say together: means with Student's t intervals, and verdicts on them.

Seeds are few, so the interval must know how little they say: a bootstrap over three seeds is their range,
which holds the mean three times in four. Methods are compared seed by seed: the same seed means the same
images, the same wrong labels and the same initial weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

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

    def verdict(self, threshold: float = 0.0) -> Verdict:
        """Whether the mean is above the threshold; without an effect it `holds` once in forty times."""
        return self.verdict_within(threshold, float("inf"), open_low=True)

    def verdict_within(self, least: float, most: float, *, open_low: bool = False) -> Verdict:
        """Whether all of the interval is between two bounds, or outside; few seeds resolve nothing."""
        return verdict_between(self.n, *interval(self.values, self.tries), least, most, open_low=open_low)


def verdict_between(
    n: int, low: float, high: float, least: float, most: float, *, open_low: bool = False
) -> Verdict:
    """Whether the interval of n values is between two bounds, or outside; few values resolve nothing."""
    if n < ENOUGH_SEEDS:
        return "not resolved"
    if high < least or low > most:
        return "fails"
    above = low > least if open_low else low >= least
    return "holds" if above and high <= most else "not resolved"


def best_of(candidates: Sequence[Comparison], threshold: float = 0.0) -> Comparison:
    """The comparison that decides whether one of the candidates is above the threshold, or none.

    Which one is best is seen in the same numbers, so intervals are corrected for the choice: the first step
    of Holm's method. That none is above is only known when all of them are below.
    """
    tried = [candidate.one_of(len(candidates)) for candidate in candidates]
    return max(tried, key=lambda c: (c.verdict(threshold) == "holds", np.nan_to_num(c.high, nan=c.mean)))


def verdict_of_all(found: Sequence[Comparison], least: float, most: float = float("inf")) -> Verdict:
    """The verdict on a claim of several parts: all must hold, and one that fails decides.

    That all hold needs no correction (an intersection-union test: each part has to pass by itself). One
    failure among many comes by chance, so it counts only if it is left when the intervals are corrected for
    their number (Holm's first step).
    """
    open_low = most == float("inf")
    if any(c.one_of(len(found)).verdict_within(least, most) == "fails" for c in found):
        return "fails"
    parts = {c.verdict_within(least, most, open_low=open_low) for c in found}
    return "holds" if parts == {"holds"} else "not resolved"


def slopes(differences: pd.DataFrame) -> pd.Series:
    """Per seed (row) the least-squares slope of the difference over the rank of x (columns, ascending)."""
    ranks = np.arange(differences.shape[1]) - (differences.shape[1] - 1) / 2
    return pd.Series(differences.to_numpy() @ ranks / (ranks @ ranks), index=differences.index)


def x_key(x: float) -> float:
    """The same number for 0.1 + 0.2 and 0.3: one place on an axis."""
    return float(f"{x:.9g}")
