"""Differences between methods, paired over the seeds that both have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lmsweep.figures.aggregate import interval, x_key
from lmsweep.figures.claim_spec import Side
from lmsweep.figures.style import method_style


class NotRunError(Exception):
    """What a claim needs is missing; the message says what."""


@dataclass(frozen=True)
class Comparison:
    """A difference: its mean over seeds and the 95% interval."""

    what: str
    x: float | None  # None: over several x
    mean: float
    low: float
    high: float
    n: int

    def verdict(self, threshold: float = 0.0) -> str:
        """Whether the difference is above the threshold; one seed resolves nothing."""
        if self.n < 2:
            return "not resolved"
        if self.low > threshold:
            return "holds"
        return "fails" if self.high < threshold else "not resolved"


class Values:
    """The selected points by panel, method and x: y per seed."""

    def __init__(self, points: pd.DataFrame, expected: Iterable[Mapping[str, Any]] = ()) -> None:
        """`expected` are cells (panel, x) that should be there, so that what is missing is known."""
        self._expected: dict[str, set[float]] = {}
        for wanted in expected:
            self._expected.setdefault(str(wanted["panel"]), set()).add(x_key(float(wanted["x"])))
        finite = points[points["y"].notna()].sort_values("seed")
        if finite.duplicated(["panel", "method", "x", "seed"]).any():
            raise ValueError("a cell has a seed twice; select a setting first")
        self._y: dict[tuple[str, str], dict[float, pd.Series]] = {}
        for key, cell in finite.groupby(["panel", "method", "x"]):
            place = self._y.setdefault((str(key[0]), str(key[1])), {})
            place[x_key(float(cell["x"].iloc[0]))] = cell.set_index("seed")["y"].astype(float)

    def xs(self, panel: str, side: Side) -> set[float]:
        """The x at which all methods of a side have points."""
        return set.intersection(*(set(self._y.get((panel, method), {})) for method in as_list(side)))

    def every_x(self, *panels: str) -> set[float]:
        """The x at which any method of these panels has points, or should have."""
        found = {x for (panel, _), cells in self._y.items() if panel in panels for x in cells}
        return found.union(*(self._expected.get(panel, set()) for panel in panels))

    def best(self, panel: str, side: Side, x: float) -> tuple[str, pd.Series]:
        """The method of a side with the highest mean at x, and its y per seed."""
        found = []
        for method in as_list(side):
            y = self._y.get((panel, method), {}).get(x_key(x))
            if y is None:
                raise NotRunError(f"{method_style(method).label} has no value at x = {x:g} in panel {panel}.")
            found.append((method, y))
        return max(found, key=lambda pair: pair[1].mean())

    def steady(self, panel: str, side: Side, xs: Sequence[float]) -> str:
        """The one method of a side with the highest mean over all of these x."""
        means = {m: sum(self.best(panel, m, x)[1].mean() for x in xs) for m in as_list(side)}
        return max(means, key=lambda method: means[method])

    def difference(self, panels: Sequence[str], left: Side, right: Side, x: float) -> tuple[str, pd.Series]:
        """What is compared, and left - right for every seed that both have."""
        (one, y), (other, z) = self.best(panels[0], left, x), self.best(panels[1], right, x)
        what = f"{method_style(one).label} against {method_style(other).label}"
        return what, paired(what, y - z)


def as_list(side: Side) -> list[str]:
    """The methods of a side."""
    return [side] if isinstance(side, str) else side


def paired(what: str, values: pd.Series) -> pd.Series:
    """The seeds that both sides have; NotRunError when there are none."""
    common = values.dropna()
    if common.empty:
        raise NotRunError(f"{what}: they have no seed in common.")
    return common


def compare(what: str, values: pd.Series, name: str, x: float | None = None) -> Comparison:
    """Mean and interval of differences per seed; `name` seeds the bootstrap."""
    y = values.to_numpy(dtype=float)
    low, high = interval(y, f"{name}/{what}/{x!r}")
    return Comparison(what, x, float(y.mean()), low, high, len(y))


def slopes(differences: pd.DataFrame) -> pd.Series:
    """Per seed (row) the least-squares slope of the difference over the rank of x (columns, ascending)."""
    ranks = np.arange(differences.shape[1]) - (differences.shape[1] - 1) / 2
    return pd.Series(differences.to_numpy() @ ranks / (ranks @ ranks), index=differences.index)
