"""`lmsweep compare` puts two runs side by side; `lmsweep table` the cells of a sweep, for a paper."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.commands import parser_of, reported
from lmsweep.commands.store import results_table
from lmsweep.config.identity import dotted
from lmsweep.evaluation.runs import find_run
from lmsweep.figures.pages.grids import METRIC, NOT_TRAINED, STATISTICS, cells, text_of
from lmsweep.figures.pages.markdown import table as markdown
from lmsweep.store.sweeps import runs_of

if TYPE_CHECKING:
    import pandas as pd


@reported()
def compare_command(arguments: Sequence[str] | None = None) -> None:
    """Show what differs between two runs: in their configurations, and in their results."""
    parser = parser_of(compare_command, outputs=True)
    parser.add_argument("runs", nargs=2, metavar="RUN", help="an id, or the beginning of one")
    options = parser.parse_args(arguments)
    print(compare(options.outputs, *options.runs), flush=True)


def compare(outputs: Path, first: str, second: str) -> str:
    """The keys and results in which two finished runs differ, in three columns."""
    runs = [find_run(str(outputs), name, trust=None) for name in (first, second)]
    configs = [dotted(run.config.to_dict()) for run in runs]
    rows = [("", *(run.id for run in runs)), *_differences(configs, NOT_TRAINED), ("", "", "")]
    metrics = [(run.folder.read_results() or {}).get("metrics", {}) for run in runs]
    rows += _differences(metrics)
    if len(rows) == 2:
        return f"Runs {runs[0].id} and {runs[1].id} are the same in all keys and results."
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    return "\n".join("  ".join(f"{t:{w}}" for t, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def _differences(
    parts: Sequence[dict[str, Any]], without: tuple[str, ...] = ()
) -> list[tuple[str, str, str]]:
    first, second = parts
    keys = [key for key in {**first, **second} if not key.startswith(without)]
    told = [(key, text_of(first.get(key, "")), text_of(second.get(key, ""))) for key in keys]
    return [row for row in told if row[1] != row[2]]


@reported()
def table_command(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each cell of a sweep: mean over seeds, 95% interval, and how many seeds."""
    parser = parser_of(table_command, outputs=True)
    parser.add_argument("name", help="a figure or another sweep that `lmsweep status` lists")
    parser.add_argument("--metric", default=METRIC, help=f"a metric of results.json ({METRIC})")
    parser.add_argument("--format", choices=FORMATS, default="md", help="md, latex or csv (default md)")
    options = parser.parse_args(arguments)
    rows = results_table(options.outputs, runs_of(options.outputs, options.name, pilots=False), used=True)
    print(FORMATS[options.format](cells(rows, options.metric), options.metric), flush=True)


def _written(table: "pd.DataFrame", metric: str, bold: str) -> list[list[str]]:
    """The table as words, the best mean in bold: the highest, or of a loss the lowest."""

    def number(value: float) -> str:
        return f"{100 * value:.2f}%" if metric.endswith("accuracy") else f"{value:.4g}"

    axes = [name for name in table.columns if name not in STATISTICS]
    best = table["mean"].min() if metric.endswith("loss") else table["mean"].max()
    lines = [[*axes, "mean", "95% interval", "n"]]
    for row in table.to_dict("records"):
        mean = number(row["mean"])
        between = f"{number(row['low'])} to {number(row['high'])}" if row["n"] > 1 else "one seed"
        bolder = bold.format(mean) if row["mean"] == best else mean
        lines.append([*(str(row[axis]) for axis in axes), bolder, between, str(row["n"])])
    return lines


def as_markdown(table: "pd.DataFrame", metric: str) -> str:
    """The cells as a table of Markdown."""
    head, *rows = _written(table, metric, "**{}**")
    return markdown(head, rows)


def as_latex(table: "pd.DataFrame", metric: str) -> str:
    """The cells as a tabular of LaTeX."""
    head, *rows = _written(table, metric, r"\textbf{{{}}}")

    def line(row: Sequence[str]) -> str:
        return " & ".join(re.sub(r"([_%&#])", r"\\\1", cell) for cell in row) + r" \\"

    columns = "l" * (len(head) - 3) + "rlr"
    body = [line(head), r"\hline", *map(line, rows)]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"])


def as_csv(table: "pd.DataFrame", _metric: str) -> str:
    """The cells with all digits."""
    return str(table.to_csv(index=False)).rstrip()


FORMATS: dict[str, Callable[["pd.DataFrame", str], str]] = {
    "md": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
}
