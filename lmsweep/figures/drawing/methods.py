"""Draw many methods side by side: a row per method, a column per panel and x, a dot with its interval."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lmsweep.figures import methods
from lmsweep.figures.drawing.curves import caption
from lmsweep.figures.drawing.layout import seeds_phrase
from lmsweep.figures.drawing.style import RC, in_math, method_style
from lmsweep.figures.spec import FigureSpec, Panel

# Inches: of a column and between columns, of the names, of a method, of what stands above and below.
_WIDTH, _GAP, _NAMES, _ROW, _ABOVE, _BELOW, _LINE = 1.0, 0.14, 1.55, 0.17, 0.78, 0.42, 0.125


def draw_methods(
    table: pd.DataFrame, spec: FigureSpec, scale: str, missing: Sequence[Mapping[str, Any]] = ()
) -> Figure:
    """Columns in the order of panels, then costs; a vertical line shows where the first method stands."""
    columns = list(methods.columns(table, spec))
    width = _NAMES + (len(columns) + 1) * (_WIDTH + _GAP)
    lines = textwrap.wrap(caption(missing, spec).replace(" (crosses)", "", 1), int(width * 17.5))
    below, rows = _BELOW + _LINE * len(lines), _ROW * len(spec.methods)
    height = below + rows + _ABOVE
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        grid = [
            figure.add_axes(
                ((_NAMES + i * (_WIDTH + _GAP)) / width, below / height, _WIDTH / width, rows / height)
            )
            for i in range(len(columns) + 1)
        ]
        for axes, (panel, title, cells) in zip(grid, columns, strict=False):
            _draw_column(axes, panel, cells, spec.methods)
            axes.set_title(in_math("\n".join(title)), fontsize=7)
        _draw_costs(grid[-1], spec.methods)
        for axes in grid:
            axes.set_ylim(len(spec.methods) - 0.4, -0.6)
            axes.set_yticks(range(len(spec.methods)), [""] * len(spec.methods))
            axes.grid(axis="y", color="#eeeeee", linewidth=0.5)
            axes.set_axisbelow(True)
            axes.xaxis.label.set_fontsize(7)
        grid[0].set_yticklabels([method_style(method).legend for method in spec.methods])
        heading: dict[str, Any] = {"ha": "center", "va": "top"}
        figure.text(0.5, 1 - 0.05 / height, spec.title, fontsize=9, weight="bold", **heading)
        subtitle = seeds_phrase(scale, table["n"], bands=True).replace("bands", "lines")
        figure.text(0.5, 1 - 0.22 / height, subtitle, fontsize=7.5, color="#444", **heading)
        place_of_caption = (0.08 / width, 0.03 / height)
        figure.text(*place_of_caption, "\n".join(lines), va="bottom", fontsize=6.5, color="#555")
    return figure


def _draw_column(axes: Axes, panel: Panel, rows: pd.DataFrame, names: Sequence[str]) -> None:
    factor = 100.0 if panel.y.unit == "percent" else 1.0
    for i, method in enumerate(names):
        if method not in rows.index:
            axes.text(
                0.5, i, "missing", transform=axes.get_yaxis_transform(), fontsize=6, color="#888", va="center"
            )
            continue
        row, style = rows.loc[method].to_dict(), method_style(method)
        mean, low, high = (factor * row[key] for key in ("mean", "low", "high"))
        seeds = [factor * float(value) for value in str(row["values"]).split()]
        axes.plot(
            [low, high], [i, i], color=style.color, linewidth=1, alpha=0.5, label=f"interval of {method}"
        )
        axes.plot(seeds, [i + 0.28] * len(seeds), ".", color=style.color, markersize=2.5, alpha=0.6)
        axes.plot([mean], [i], label=method, **{**style.line_kwargs(), "linestyle": "none"})
        if i == 0:
            axes.axvline(mean, color="#bbb", linewidth=0.6, zorder=0)
    left, right = axes.get_xlim()
    axes.set_xlim(max(left, -3), min(right, 103) if factor == 100 else right)
    axes.set_xlabel(in_math(f"{panel.y.label} (%)" if factor == 100 else panel.y.label))


def _draw_costs(axes: Axes, names: Sequence[str]) -> None:
    """What a step costs by `make bench`, in times of a cross-entropy step."""
    for method, row in methods.costs(names).items():
        i, value = names.index(method), row["value"]
        axes.plot([value], [i], label=method, **{**method_style(method).line_kwargs(), "linestyle": "none"})
        axes.annotate(f"{value:.1f}", (value, i), (5, 0), textcoords="offset points", fontsize=6, va="center")
    axes.axvline(1.0, color="#bbb", linewidth=0.6, zorder=0)
    axes.set_xlim(0, 1.25 * max([1.0, *axes.get_xlim()]))
    axes.set_title("cost of a step", fontsize=7)
    axes.set_xlabel("times cross-entropy")
