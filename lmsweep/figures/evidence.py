"""What claims are held against: the figure, and its numbers per seed, by panel, method and x."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.statistics import x_key

if TYPE_CHECKING:
    from lmsweep.figures.spec import FigureSpec

Side = str | list[str]  # a method, or several methods of which the best counts


class NotRunError(Exception):
    """What a claim needs is missing; the message says what."""


class Evidence:
    """A figure and its selected points."""

    def __init__(
        self, figure: "FigureSpec", points: pd.DataFrame, expected: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        """`expected` are the cells (panel, method, x) of the grid, so that what is missing is known."""
        self._figure = figure
        self._expected: dict[tuple[str, str], set[float]] = {}
        for wanted in expected:
            side = (str(wanted["panel"]), str(wanted["method"]))
            self._expected.setdefault(side, set()).add(x_key(float(wanted["x"])))
        finite = points[points["y"].notna()].sort_values("seed")
        if finite.duplicated(["panel", "method", "x", "seed"]).any():
            raise ValueError("a cell has a seed twice; select a setting first")
        self._y: dict[tuple[str, str], dict[float, pd.Series]] = {}
        for key, cell in finite.groupby(["panel", "method", "x"]):
            curve = self._y.setdefault((str(key[0]), str(key[1])), {})
            curve[x_key(float(cell["x"].iloc[0]))] = cell.set_index("seed")["y"].astype(float)

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
        every = self._every_x(sides)
        if at != "all":
            return [min(every) if at == "lowest" else max(every)], set()
        return sorted(shared), every - shared

    def at(self, panel: str, method: str, x: float) -> pd.Series:
        """A method's y per seed at x."""
        y = self._y.get((panel, method), {}).get(x_key(x))
        if y is None:
            raise NotRunError(f"{method_style(method).label} has no value at x = {x:g} in panel {panel}.")
        return y

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
        return set.intersection(*(set(self._y.get((panel, method), {})) for method in methods_of(side)))

    def _every_x(self, sides: Sequence[tuple[str, Side]]) -> set[float]:
        """The x at which any of these methods has points, or should have."""
        each = [(panel, method) for panel, side in sides for method in methods_of(side)]
        return {x for key in each for x in (*self._y.get(key, ()), *self._expected.get(key, ()))}


def methods_of(side: Side) -> list[str]:
    """The methods of a side."""
    return [side] if isinstance(side, str) else side


def common_seeds(what: str, values: pd.Series) -> pd.Series:
    """The seeds that have a value; NotRunError when no seed has."""
    common = values.dropna()
    if common.empty:
        raise NotRunError(f"{what}: they have no seed in common.")
    return common
