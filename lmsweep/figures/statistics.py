"""What the seeds of a cell say together: means with 95% intervals, and verdicts that follow from them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from lmsweep.seeds import derive_seed

DRAWS = 10_000
# `not resolved`: the interval leaves it open, or there is one seed only. `not run`: a number is missing.
Verdict = Literal["holds", "fails", "not resolved", "not run"]


def interval(values: np.ndarray, name: str, draws: int = DRAWS) -> tuple[float, float]:
    """The 95% percentile bootstrap interval of the mean; its random numbers depend on `name` only."""
    if len(values) == 1:
        return float(values[0]), float(values[0])
    rng = np.random.default_rng(derive_seed(0, f"bootstrap/{name}"))
    means = values[rng.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    # Rounding must not put the mean of equal values outside of their interval.
    mean = values.mean()
    return float(min(low, mean)), float(max(high, mean))


@dataclass(frozen=True)
class Comparison:
    """A number per seed, such as the difference of two methods: its mean and 95% interval."""

    what: str
    x: float | None  # None: over several x
    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, what: str, values: pd.Series, name: str, x: float | None = None) -> "Comparison":
        """Mean and interval of one value per seed; `name` seeds the bootstrap."""
        y = values.to_numpy(dtype=float)
        return cls(what, x, float(y.mean()), *interval(y, name), len(y))

    def verdict(self, threshold: float = 0.0) -> Verdict:
        """Whether the mean is above the threshold; one seed resolves nothing."""
        if self.n < 2:
            return "not resolved"
        if self.low > threshold:
            return "holds"
        return "fails" if self.high < threshold else "not resolved"

    def verdict_within(self, low: float, high: float) -> Verdict:
        """Whether the mean is between two bounds; one seed resolves nothing."""
        if self.n < 2:
            return "not resolved"
        if self.high < low or self.low > high:
            return "fails"
        return "holds" if low <= self.mean <= high else "not resolved"


def verdict_of_all(verdicts: set[Verdict]) -> Verdict:
    """The verdict on a claim of several parts: all must hold, and one that fails decides."""
    return "fails" if "fails" in verdicts else "holds" if verdicts == {"holds"} else "not resolved"


def slopes(differences: pd.DataFrame) -> pd.Series:
    """Per seed (row) the least-squares slope of the difference over the rank of x (columns, ascending)."""
    ranks = np.arange(differences.shape[1]) - (differences.shape[1] - 1) / 2
    return pd.Series(differences.to_numpy() @ ranks / (ranks @ ranks), index=differences.index)


def x_key(x: float) -> float:
    """The same number for 0.1 + 0.2 and 0.3: one place on an axis."""
    return float(f"{x:.9g}")
