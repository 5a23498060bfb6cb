"""Many methods side by side: the columns that their picture and their table have, and what a step costs."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from lmsweep.figures.claims.kinds import COSTS
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.pages.markdown import table as markdown
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.figures.statistics import ENOUGH_SEEDS
from lmsweep.figures.words import NOTHING, amount, place


class Column(NamedTuple):
    """One panel at one x: its title in two lines, and the rows of the figure's table by method."""

    panel: Panel
    title: tuple[str, str]
    rows: pd.DataFrame


def columns(table: pd.DataFrame, spec: FigureSpec) -> Iterator[Column]:
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


def methods_page(table: pd.DataFrame, spec: FigureSpec, scale: str) -> str:
    """The picture's numbers as Markdown: means with half of Student's 95% interval, the best ones bold."""
    shown, cost = list(columns(table, spec)), costs(spec.methods)
    head = ["method", *(" ".join(column.title) for column in shown), "cost of a step"]
    cells = [
        [method_style(method).label, *(_cell(column, method) for column in shown), _times(cost.get(method))]
        for method in spec.methods
    ]
    seeds = " to ".join(map(str, sorted({table["n"].min(), table["n"].max()}))) if len(table) else "no"
    lines = [
        f"# {spec.title}",
        f"{spec.question} At {scale}, {seeds} seeds: "
        f"{', '.join(dict.fromkeys(panel.y.label for panel in spec.panels))}, "
        "± half of Student's 95% interval over seeds; the highest mean of a column is bold.",
        markdown(head, cells),
        _measured(cost),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


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
