"""Grids without a figure file: the cells of a sweep as a table, and a plot of a metric against its axes."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lmsweep.errors import UserError
from lmsweep.figures.drawing.layout import Sheet, png, with_grid
from lmsweep.figures.drawing.style import PANEL_HEIGHT, PANEL_INCHES, RC, in_math, method_style
from lmsweep.figures.statistics import interval

METRIC = "test_accuracy"
# Keys that say where a run was kept and how it was watched, not what was trained.
NOT_TRAINED = ("outputs", "tracking.", "data.root", "data.workers", "trainer.log_every")
STATISTICS = ("mean", "low", "high", "n")
MOST_LINES, MOST_PANELS = 12, 6  # more of them cannot be read
_DASHES: Any = ("-", (0, (4, 1.8)), (0, (1, 1.1)), (0, (5, 1.5, 1, 1.5)))


def text_of(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def cells(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The cells of finished runs: the keys in which they differ, mean, low, high and n."""
    done = rows[rows["state"] == "done"]
    numbers = done.select_dtypes("number").columns
    if metric not in numbers:
        allowed = ", ".join(sorted(name for name in numbers if not name.startswith("config.")))
        raise UserError(f"--metric {metric} is not allowed: it must be one of {allowed or 'none'}.")
    axes = [key for key in filter(_is_axis, done.columns) if done[key].astype(str).nunique() > 1]
    texts = done.assign(**{key: done[key].map(text_of).replace("nan", "") for key in axes})
    keys = ["method", *(axis.removeprefix("config.") for axis in axes)]
    found: list[dict[str, Any]] = []
    for values, part in texts.groupby(["method", *axes], sort=False):
        y = part[metric].to_numpy(float)
        low, high = interval(y)
        about = dict(zip(keys, values, strict=True))
        found.append({**about, "mean": y.mean(), "low": low, "high": high, "n": len(y)})
    found.sort(key=lambda row: [_place(str(row[key])) for key in keys])
    return pd.DataFrame(found)


def _place(value: str) -> tuple[bool, float, str]:
    """Where a value stands in a column: numbers by their size, words by the alphabet."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value


def _is_axis(column: str) -> bool:
    key = column.removeprefix("config.")
    told = ("method.", "margin.norm", "margin.layers", "margin.exact", "margin.score", "adversarial.kind")
    if key == column or key == "seed" or key.endswith("name"):
        return False
    return not key.startswith((*NOT_TRAINED, *told, "content."))  # the name of the method says what is `told`


def axes_of(table: pd.DataFrame) -> list[str]:
    """The columns of `cells` that were swept, the one with the most values first; all of them, the method."""
    swept = [name for name in table.columns if name not in ("method", *STATISTICS)]
    return sorted(swept, key=lambda name: -table[name].nunique()) or ["method"]


def draw_grid(table: pd.DataFrame, title: str) -> bytes:
    """A PNG: the test accuracy against the axis with the most values, a panel for each value of the next one.

    Lines are methods, and the values of all other axes; error bars are 95% intervals over seeds. A method
    that does not have the axis is a level line, and stands in every panel when it lacks that one.
    """
    x, *others = axes_of(table)
    facet = others.pop(0) if others and table[others[0]].nunique() <= MOST_PANELS else None
    panels = _sorted(table[facet]) if facet else [""]
    keys = [key for key in ("method", *others) if key != x]
    groups = table.groupby(keys, sort=False) if keys else [((), table)]
    lines = sorted(groups, key=lambda line: -line[1]["mean"].max())[:MOST_LINES]
    columns = min(3, len(panels))
    sheet = Sheet(-(-len(panels) // columns), columns, PANEL_INCHES, PANEL_HEIGHT, used=len(panels))
    styles = [_style(values, number) for number, (values, _) in enumerate(lines)]
    with matplotlib.rc_context(RC):
        for axes, value in zip(sheet.used, panels, strict=True):
            parts = [part if facet is None else part[part[facet].isin(["", value])] for _, part in lines]
            _draw(axes, x, _sorted(table[x]), list(zip(parts, styles, strict=True)))
            axes.set_ylabel(METRIC.replace("_", " "))
            axes.set_title(f"{facet} = {value}" if facet else "")
        handles = [Line2D([], [], **style) for style in styles]
    labels = [in_math(_label(keys, values)) for values, _ in lines]
    rest = f"; the best {MOST_LINES} of {len(groups)} lines" if len(groups) > MOST_LINES else ""
    counts = sorted({int(n) for n in table["n"]})
    seeds = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    return png(sheet.finish(title, f"mean and 95% interval over seeds, {seeds}{rest}", handles, labels))


def _draw(axes: Axes, x: str, places: Sequence[str], lines: Sequence[tuple[pd.DataFrame, Any]]) -> None:
    for part, style in lines:
        for level in part.loc[part[x] == "", "mean"]:
            axes.axhline(level, color=style["color"], linestyle=style["linestyle"], linewidth=1)
        part = part[part[x] != ""]
        part = part.assign(place=[places.index(value) for value in part[x]]).sort_values("place")
        ends = [(part["mean"] - part["low"]).fillna(0), (part["high"] - part["mean"]).fillna(0)]
        axes.errorbar(part["place"], part["mean"], yerr=ends, capsize=2, elinewidth=0.7, **style)
    names = [method_style(name).legend if x == "method" else name for name in places]
    axes.set_xticks(range(len(places)), names)  # evenly, because values may be words, lists or powers of ten
    axes.set_xlim(-0.4, len(places) - 0.6)
    if sum(map(len, names)) > 40:
        axes.tick_params(axis="x", labelrotation=20)
    axes.set_xlabel("" if x == "method" else x)
    with_grid(axes)


def _style(values: tuple[Any, ...], number: int) -> dict[str, Any]:
    """A method's own style; further axes change the dashes."""
    if not values:
        return {"color": "black", "marker": "s", "linestyle": "none", "markersize": 4.2}
    style = method_style(str(values[0])).line_kwargs()
    return style if len(values) == 1 else {**style, "linestyle": _DASHES[number % len(_DASHES)]}


def _label(keys: Sequence[str], values: tuple[Any, ...]) -> str:
    if not values:
        return METRIC.replace("_", " ")
    further = [f"{key} {value}" for key, value in zip(keys[1:], values[1:], strict=True)]
    return ", ".join([method_style(str(values[0])).label, *further])


def _sorted(column: "pd.Series[Any]") -> list[str]:
    return sorted((str(value) for value in column.unique() if value != ""), key=_place)
