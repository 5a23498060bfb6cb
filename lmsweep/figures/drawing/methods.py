"""Many methods side by side, as a picture and as a Markdown page, with what a step of each costs.

There is a row per method and a column per panel and x; the picture has a dot with its interval in each.
"""

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lmsweep.figures.claims import COSTS
from lmsweep.figures.drawing.curves import caption
from lmsweep.figures.drawing.layout import seeds_phrase, write_around
from lmsweep.figures.drawing.style import RC, in_math, method_style
from lmsweep.figures.pages.markdown import table as markdown
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.figures.statistics import ENOUGH_SEEDS, Cells
from lmsweep.figures.words import NOTHING, amount, place

# Inches: widths of a column, of the gap between two, and of the names; heights of a method's row, of what
# stands above and below all rows, and of a line of the caption.
_WIDTH, _GAP, _NAMES, _ROW, _ABOVE, _BELOW, _LINE = 1.0, 0.14, 1.55, 0.17, 0.78, 0.42, 0.125


class Column(NamedTuple):
    """One panel at one x: its title in two lines, and the rows of the figure's table by method."""

    panel: Panel
    title: tuple[str, str]
    rows: pd.DataFrame


def columns_of(table: pd.DataFrame, spec: FigureSpec) -> Iterator[Column]:
    """In the order of panels and x; a column that repeats the numbers of an earlier one is left out."""
    seen: list[tuple[list[str], list[float]]] = []
    for panel in spec.panels:
        for x, rows in table[table["panel"] == panel.name].groupby("x"):
            same = (list(rows["selected"]), list(rows["mean"]))
            if same not in seen:
                seen.append(same)
                at = place(float(str(x)), panel.x.unit).removeprefix(" at ")
                at = at if panel.x.unit == "percent" else f"{panel.x.label} {at}"
                yield Column(panel, (panel.title, at), rows.set_index("method"))


def costs(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What a step costs by `make bench`, in times of a cross-entropy step, where that was measured."""
    rows = json.loads(COSTS.read_bytes()) if COSTS.is_file() else {}
    found = {method: rows.get(f"method_steps/mnist, {method}") for method in methods}
    found |= {"xent": {"value": 1.0}} if "xent" in found else {}
    return {method: row for method, row in found.items() if row is not None}


def draw_methods(table: pd.DataFrame, spec: FigureSpec, scale: str, missing: Cells = ()) -> Figure:
    """Columns in the order of panels, then costs; a vertical line shows where the first method stands."""
    columns = list(columns_of(table, spec))
    width = _NAMES + (len(columns) + 1) * (_WIDTH + _GAP)
    lines = textwrap.wrap(caption(missing, spec).replace(" (crosses)", "", 1), int(width * 17.5))
    below, rows = _BELOW + _LINE * len(lines), _ROW * len(spec.methods)
    height = below + rows + _ABOVE
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        lefts = [(_NAMES + i * (_WIDTH + _GAP)) / width for i in range(len(columns) + 1)]
        size = (_WIDTH / width, rows / height)
        grid = [figure.add_axes((left, below / height, *size)) for left in lefts]
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
        subtitle = seeds_phrase(scale, table["n"], bands=True).replace("bands", "lines")
        write_around(figure, [spec.title], [subtitle], lines)
    return figure


def _draw_column(axes: Axes, panel: Panel, rows: pd.DataFrame, names: Sequence[str]) -> None:
    factor = panel.y.factor
    for i, method in enumerate(names):
        if method not in rows.index:
            middle = axes.get_yaxis_transform()
            axes.text(0.5, i, "missing", transform=middle, fontsize=6, color="#888", va="center")
            continue
        row, style = rows.loc[method].to_dict(), method_style(method)
        mean, low, high = (factor * row[key] for key in ("mean", "low", "high"))
        seeds = [factor * float(value) for value in str(row["values"]).split()]
        interval = f"interval of {method}"
        axes.plot([low, high], [i, i], color=style.color, linewidth=1, alpha=0.5, label=interval)
        axes.plot(seeds, [i + 0.28] * len(seeds), ".", color=style.color, markersize=2.5, alpha=0.6)
        axes.plot([mean], [i], label=method, **{**style.line_kwargs(), "linestyle": "none"})
        if i == 0:
            axes.axvline(mean, color="#bbb", linewidth=0.6, zorder=0)
    left, right = axes.get_xlim()
    axes.set_xlim(max(left, -3), min(right, 103) if factor == 100 else right)
    axes.set_xlabel(in_math(panel.y.with_unit))


def _draw_costs(axes: Axes, names: Sequence[str]) -> None:
    """What a step costs by `make bench`, in times of a cross-entropy step."""
    for method, row in costs(names).items():
        i, value = names.index(method), row["value"]
        axes.plot([value], [i], label=method, **{**method_style(method).line_kwargs(), "linestyle": "none"})
        axes.annotate(f"{value:.1f}", (value, i), (5, 0), textcoords="offset points", fontsize=6, va="center")
    axes.axvline(1.0, color="#bbb", linewidth=0.6, zorder=0)
    axes.set_xlim(0, 1.25 * max([1.0, *axes.get_xlim()]))
    axes.set_title("cost of a step", fontsize=7)
    axes.set_xlabel("times cross-entropy")


def methods_page(table: pd.DataFrame, spec: FigureSpec, scale: str) -> str:
    """The picture's numbers as Markdown: means with half of Student's 95% interval, the best ones bold."""
    shown, cost = list(columns_of(table, spec)), costs(spec.methods)
    head = ["method", *(" ".join(column.title) for column in shown), "cost of a step"]
    cells = [
        [method_style(method).label, *(_cell(column, method) for column in shown), _times(cost.get(method))]
        for method in spec.methods
    ]
    seeds = " to ".join(map(str, sorted({table["n"].min(), table["n"].max()}))) if len(table) else "no"
    shown_is = (
        f"{spec.question} At {scale}, {seeds} seeds: "
        f"{', '.join(dict.fromkeys(panel.y.label for panel in spec.panels))}, "
        "± half of Student's 95% interval over seeds; the highest mean of a column is bold."
    )
    lines = [f"# {spec.title}", shown_is, markdown(head, cells), _measured(cost)]
    return "\n\n".join(filter(None, lines)) + "\n"


def _cell(column: Column, method: str) -> str:
    if method not in column.rows.index:
        return NOTHING
    row, unit = column.rows.loc[method].to_dict(), column.panel.y.unit
    said = amount(row["mean"], unit)
    if row["mean"] == column.rows["mean"].max():
        said = f"**{said}**"
    half = (row["high"] - row["low"]) / 2
    return f"{said} ± {amount(half, unit).removesuffix('%')}" if row["n"] >= ENOUGH_SEEDS else said


def _times(row: dict[str, Any] | None) -> str:
    if row is None:
        return NOTHING
    spread = f" [{row['low']:.2f}, {row['high']:.2f}]" if "low" in row else ""
    return f"{row['value']:.2f}{spread}"


def _measured(cost: dict[str, dict[str, Any]]) -> str:
    """Where costs were measured."""
    where = {(e["machine"]["cpu"], e["commit"][:7]) for row in cost.values() if (e := row.get("environment"))}
    if not where:
        return ""
    places = ", ".join(f"{cpu} at commit {commit}" for cpu, commit in sorted(where))
    return (
        "The cost of a step, forward and backward pass of the paper's MNIST network, is in times of a "
        f"cross-entropy step with its 95% interval, by `make bench ROW=method_steps` on {places}."
    )
