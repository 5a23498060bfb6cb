"""Draw a figure: curves from its table, against a key or an attack or while networks train; decision regions.

Figure 1 shows where networks of two inputs decide for which class, and the data they saw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from lmsweep.errors import ConfigError
from lmsweep.figures.drawing.layout import Sheet, say_missing, seeds_phrase, with_grid
from lmsweep.figures.drawing.style import (
    BAND,
    BLUE,
    LINE_WIDTH,
    PANEL_HEIGHT,
    PANEL_INCHES,
    RC,
    REFERENCE_COLORS,
    SPLITS,
    VERMILLION,
    in_math,
    method_style,
)
from lmsweep.figures.spec import FigureSpec, Panel, Reference
from lmsweep.figures.statistics import ENOUGH_SEEDS, Cells
from lmsweep.figures.words import place

_BESIDE = 4 / 72  # inches from a mean to the points of its seeds
MANY = 5  # methods of a panel: then their bands are lighter
NAMED = 6  # missing cells in the caption
NUMBERS = ["x", "mean", "low", "high", "n"]  # the columns of a table that a curve is drawn from
# Of the negative and the positive class: the region (blue and yellow, as in the paper), and its samples.
REGIONS = ("#d3e6f4", "#fbf6c4")
SAMPLES = (BLUE, VERMILLION)
BOLD_DOTS: list[dict[str, Any]] = [
    {"color": color, "markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5}
    for color in SAMPLES
]
# Mixed with white rather than transparent, so that light dots do not darken where they meet.
LIGHT_DOTS: list[dict[str, Any]] = [
    {"color": tuple(0.62 * c + 0.38 for c in to_rgb(color)), "markersize": 2.6, "markeredgewidth": 0}
    for color in SAMPLES
]


def draw_curves(table: pd.DataFrame, spec: FigureSpec, scale: str, missing: Cells = ()) -> Figure:
    """Panels in rows of up to three (four are two by two), a curve per method with a point per seed."""
    count = len(spec.panels)
    columns = count if count <= 3 else 2 if count == 4 else 3
    sheet = Sheet(-(-count // columns), columns, PANEL_INCHES, PANEL_HEIGHT, used=count)
    names = dict.fromkeys(reference.name for reference in spec.references)
    colors = {name: REFERENCE_COLORS[i % 3] for i, name in enumerate(names)}
    with matplotlib.rc_context(RC):
        for axes, panel in zip(sheet.used, spec.panels, strict=True):
            rows = table[table["panel"] == panel.name]
            gone = [cell for cell in missing if cell["panel"] == panel.name]
            published = [(colors[ref.name], ref) for ref in spec.references if ref.panel == panel.name]
            _draw_panel(axes, panel, rows, gone, published)
            if count > 1:  # the title of the figure says what the only panel is
                axes.set_title(in_math(panel.title))
        handles = [Line2D([], [], **method_style(method).line_kwargs()) for method in spec.methods]
        handles += [Line2D([], [], **_reference_style(color)) for color in colors.values()]
    labels = [method_style(method).legend for method in spec.methods] + [in_math(name) for name in colors]
    subtitle = seeds_phrase(scale, table["n"], bands=True)
    return sheet.finish(spec.title, subtitle, handles, labels, caption(missing, spec))


def draw_distances(table: pd.DataFrame, spec: FigureSpec, scale: str) -> Figure:
    """Figures 12 to 14: panels below each other, methods beside each other, one line per split of the data.

    The x are training steps. A row has one y axis.
    """
    sheet = Sheet(len(spec.panels), len(spec.methods), 3.0, 1.75)
    with matplotlib.rc_context(RC):
        for row, panel in zip(sheet.axes, spec.panels, strict=True):
            for axes, method in zip(row, spec.methods, strict=True):
                mine = table[(table["panel"] == panel.name) & (table["method"] == method)]
                _draw_splits(axes, mine)
                axes.set_title(f"{method_style(method).legend}, {panel.title}")
                if axes is row[0]:
                    axes.set_ylabel("distance to boundary", labelpad=1)  # room for labels such as -0.75
                else:
                    axes.sharey(row[0])
        for axes in sheet.axes[-1]:
            axes.set_xlabel("training step")
        handles = [Line2D([], [], **_split_style(split)) for split in SPLITS]
    subtitle = seeds_phrase(scale, table["n"], bands=True)
    return sheet.finish(spec.title, subtitle, handles, [label for _, _, label in SPLITS.values()])


def _draw_splits(axes: Axes, rows: pd.DataFrame) -> None:
    for split in SPLITS:
        curve = rows[rows["split"] == split].sort_values("x")
        _draw_curve(axes, split, curve[NUMBERS].astype(float), _split_style(split))
        axes.plot(*_seeds(curve).T, ".", color=SPLITS[split][0], ms=2, mew=0, alpha=0.7)
    if rows.empty:
        say_missing(axes)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    with_grid(axes)


def _split_style(split: str) -> dict[str, Any]:
    color, line, _ = SPLITS[split]
    return {"color": color, "linestyle": line, "linewidth": LINE_WIDTH}


def caption(missing: Cells, spec: FigureSpec) -> str:
    """One sentence that lists the missing cells, those of the same method and reason together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell in missing:
        panel = spec.panel(cell["panel"])
        key = (panel.title if len(spec.panels) > 1 else "", cell["method"], cell["reason"])
        groups.setdefault(key, []).append(place(cell["x"], panel.x.unit).removeprefix(" at "))
    parts = [
        f"{f'{title}: ' if title else ''}{method_style(method).label} at {', '.join(xs)} ({reason})"
        for (title, method, reason), xs in groups.items()
    ]
    if not parts:
        return ""
    more = f"; and {len(parts) - NAMED} more, listed in the JSON" if len(parts) > NAMED else ""
    return f"Missing (crosses): {'; '.join(parts[:NAMED])}{more}."


def _draw_panel(
    axes: Axes, panel: Panel, rows: pd.DataFrame, missing: Cells, references: Sequence[tuple[str, Reference]]
) -> None:
    """One panel; `references` are its published points, each with its colour in the whole figure."""
    fx, fy = panel.x.factor, panel.y.factor
    band = BAND if len(panel.methods) <= MANY else 0.5 * BAND  # bands of many methods would hide each other
    for i, method in enumerate(panel.methods):
        # A row without numbers where a cell is missing, so that the line does not pass over it.
        gaps = [cell["x"] for cell in missing if cell["method"] == method]
        holes = pd.DataFrame({"x": gaps, "n": 0}, columns=NUMBERS, dtype=float)
        drawn = rows[rows["method"] == method]
        if len(drawn):
            _draw_seeds(axes, method, fx, fy, drawn)
            line = pd.concat([drawn[NUMBERS].astype(float), holes]).sort_values("x")
            line *= [fx, fy, fy, fy, 1]
            style = {**method_style(method).line_kwargs(), "zorder": 3 + 0.01 * i}
            _draw_curve(axes, method, line, style, band)
    for color, reference in references:
        x, y = np.array(reference.points, dtype=float).T
        axes.plot(fx * x, fy * y, label=reference.name, zorder=2.5, **_reference_style(color))
    _x_axis(axes, panel, [*rows["x"], *(cell["x"] for cell in missing)], fx)
    axes.set_xlabel(in_math(panel.x.with_unit))
    axes.set_ylabel(in_math(panel.y.with_unit))
    with_grid(axes)
    if panel.y.unit == "percent":  # the band of three seeds can leave 0 to 100%
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, -2), min(top, 102))
    _crosses(axes, panel, missing, fx)


def _draw_curve(
    axes: Axes, label: str, rows: pd.DataFrame, style: Mapping[str, Any], band: float = BAND
) -> None:
    """A line with its band, from rows of NUMBERS."""
    x, mean, low, high, n = rows.to_numpy(dtype=float).T
    several = n >= ENOUGH_SEEDS
    axes.plot(x, mean, label=label, **style)
    color, where = style["color"], several.tolist()
    axes.fill_between(x, low, high, where=where, color=color, alpha=band, linewidth=0, zorder=2)
    # A band needs two neighbours; a point without one gets a bar.
    beside = np.append(several[1:], False) | np.append(False, several[:-1])
    alone = several & ~beside
    axes.vlines(x[alone], low[alone], high[alone], colors=color, linewidth=1, alpha=0.6)


def _seeds(rows: pd.DataFrame) -> np.ndarray:
    """x and y of every seed."""
    seeds = [(x, float(y)) for x, ys in zip(rows["x"], rows["values"], strict=True) for y in ys.split()]
    return np.array(seeds).reshape(-1, 2)


def _draw_seeds(axes: Axes, method: str, fx: float, fy: float, rows: pd.DataFrame) -> None:
    """Every seed as a small point beside the mean."""
    x, y = (_seeds(rows) * (fx, fy)).T
    beside = axes.transData + ScaledTranslation(_BESIDE, 0, axes.figure.dpi_scale_trans)
    color, label = method_style(method).color, f"seeds of {method}"
    axes.plot(x, y, ".", ms=3.5, mew=0, color=color, alpha=0.7, zorder=2.2, transform=beside, label=label)


def _x_axis(axes: Axes, panel: Panel, xs: Sequence[float], factor: float) -> None:
    if panel.x.scale == "log":
        if any(x <= 0 for x in xs):
            raise ConfigError(
                f"x.scale=log is not allowed in panel {panel.name}, which has x={min(xs):g}: "
                "it must be linear, or every x greater than 0; change it in the figure's file in sweeps/."
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if 0 < len(set(xs)) <= 7:
        axes.set_xticks([factor * x for x in sorted(set(xs))])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _crosses(axes: Axes, panel: Panel, missing: Cells, factor: float) -> None:
    """A small cross on the x axis per missing cell; several at one x stand on each other."""
    heights: dict[float, int] = {}
    for cell in sorted(missing, key=lambda cell: panel.methods.index(cell["method"])):
        x = factor * cell["x"]
        level = heights[x] = heights.get(x, -1) + 1
        color, label = method_style(cell["method"]).color, f"missing {cell['method']}"
        place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False, "zorder": 5}
        axes.plot([x], [0.04 * level], "x", ms=4, mew=1, color=color, label=label, **place)


def _reference_style(color: str) -> dict[str, Any]:
    marker = {"marker": "*", "markersize": 7, "markeredgewidth": 0}
    return {**marker, "color": color, "linestyle": (0, (1, 1.5)), "linewidth": 0.8 * LINE_WIDTH}


@dataclass(frozen=True)
class Regions:
    """A trained network on a grid of inputs: `score` > 0 means class 1 (rows are y, columns are x).

    Points have two columns, labels are 0 and 1, and the accuracy is that on the test points.
    """

    method: str
    x: np.ndarray
    y: np.ndarray
    score: np.ndarray
    train_points: np.ndarray
    train_labels: np.ndarray
    test_points: np.ndarray
    test_labels: np.ndarray
    test_accuracy: float


def draw_regions(networks: Sequence[Regions], title: str, scale: str) -> Figure:
    """The networks beside each other: regions, bold training and light test dots, test accuracy on top."""
    sheet = Sheet(1, max(1, len(networks)), 0.85 * PANEL_INCHES, 0.85 * PANEL_INCHES)
    with matplotlib.rc_context(RC):
        for axes, network in zip(sheet.axes[0], networks, strict=False):
            _draw_regions(axes, network)
        if not networks:
            say_missing(sheet.axes[0][0])
        handles = [
            Line2D([], [], linestyle="none", marker="o", **style) for style in (*BOLD_DOTS, *LIGHT_DOTS)
        ]
    labels = [f"{which}, class {label}" for which in ("training", "test") for label in (0, 1)]
    return sheet.finish(title, seeds_phrase(scale, [1] * len(networks)), handles, labels)


def _draw_regions(axes: Axes, network: Regions) -> None:
    score = np.asarray(network.score, dtype=float)
    axes.contourf(network.x, network.y, score, levels=[-np.inf, 0.0, np.inf], colors=list(REGIONS), zorder=0)
    if score.min() < 0 < score.max():  # else there is no boundary, and matplotlib warns
        axes.contour(network.x, network.y, score, levels=[0.0], colors="black", linewidths=0.9, zorder=1)
    for label, (bold, light) in enumerate(zip(BOLD_DOTS, LIGHT_DOTS, strict=True)):
        train = network.train_points[network.train_labels == label]
        test = network.test_points[network.test_labels == label]
        axes.plot(*train.T, linestyle="none", marker="o", label=f"train {label}", zorder=3, **bold)
        axes.plot(*test.T, linestyle="none", marker="o", label=f"test {label}", zorder=2, **light)
    axes.set_xlim(network.x.min(), network.x.max())
    axes.set_ylim(network.y.min(), network.y.max())
    axes.set_title(f"{method_style(network.method).legend} (test {100 * network.test_accuracy:.1f}%)")
    axes.set_xlabel("input 1")
    axes.set_ylabel("input 2")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
