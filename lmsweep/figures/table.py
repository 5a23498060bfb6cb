"""A figure's table: made from points, written as CSV, compared with the expected one."""

import math
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from lmsweep.figures.spec import FigureSpec
from lmsweep.figures.statistics import ENOUGH_SEEDS, interval, x_key
from lmsweep.files import write_atomically

COLUMNS = ["method", "x", "mean", "low", "high", "n", "selected", "panel", "setting", "val", "values"]
# Absolute for accuracies; relative for what is larger than 1, as distances are. Processors round differently,
# and a few hundred steps of training can turn that into as much as another seed would change: digits with 80%
# noise gave 32% instead of 16% in one of three runs. So means may also differ by half the diagonal of both
# intervals' widths; of means over three seeds that measure the same, 1% are further apart.
MEAN_TOLERANCE = 0.02
_FLOATS = ("x", "step", "mean", "low", "high", "val")
_KEYS = ("panel", "method", "x", "layer", "split", "step")


def aggregate(points: pd.DataFrame) -> pd.DataFrame:
    """One row per panel, method and x of selected points; points without a y are left out."""
    rows = []
    finite = points[points["y"].notna()].sort_values(["panel", "method", "x", "seed"])
    for key, cell in finite.groupby(["panel", "method", "x"]):
        panel, method, x = str(key[0]), str(key[1]), float(cell["x"].iloc[0])
        if cell["seed"].duplicated().any():
            raise ValueError(f"{panel}/{method}/{x}: a seed is there twice; select a setting first")
        y = cell["y"].to_numpy(dtype=float)
        low, high = interval(y)
        numbers = (float(y.mean()), low, high, len(y))
        chosen = (" ".join(cell["run"]), panel, cell["setting"].iloc[0], float(cell["val"].mean()))
        values = " ".join(f"{value + 0.0:.6g}" for value in y)  # of the selected runs, in their order
        rows.append((method, x, *numbers, *chosen, values))
    return pd.DataFrame(rows, columns=COLUMNS)


def ordered(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """The rows in the order of the figure: panels, methods as the legend names them, x."""
    known = [(panel.name, method) for panel in spec.panels for method in panel.methods]
    ranks = {pair: rank for rank, pair in enumerate(known)}
    pairs = list(zip(table["panel"], table["method"], strict=True))
    unknown = sorted(set(pairs) - set(known))
    if unknown:
        raise ValueError(f"{spec.name} has no panel and method {unknown[0]}")
    ranked = table.assign(rank=[ranks[pair] for pair in pairs]).sort_values(["rank", "x"], kind="stable")
    return ranked.drop(columns="rank").reset_index(drop=True)


def missing(
    points: pd.DataFrame, spec: FigureSpec, expected: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The `expected` cells (panel, method, x, reason) without a point that has a y, in the figure's order."""
    finite = points[points["y"].notna()]
    there = {
        (panel, method, x_key(x))
        for panel, method, x in zip(finite["panel"], finite["method"], finite["x"], strict=True)
    }
    cells = {(cell["panel"], cell["method"], x_key(cell["x"])): cell for cell in expected}
    gone = [cell for key, cell in cells.items() if key not in there]
    table = pd.DataFrame(gone, columns=["panel", "method", "x", "reason"]).astype({"x": float})
    rows = ordered(table, spec).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


def to_csv(table: pd.DataFrame) -> str:
    """The text of the CSV file: six significant digits, and the same bytes for the same numbers."""
    text = table.copy()
    for name in _FLOATS:
        if name in text:
            text[name] = [f"{value + 0.0:.6g}" for value in text[name]]  # + 0.0: no "-0"
    return text.to_csv(index=False, lineterminator="\n")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the table in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_csv(table))


def read_csv(path: Path | str | StringIO) -> pd.DataFrame:
    """Read what `write_csv` wrote. Run ids stay text: some of them, as 123456e78901, look like numbers."""
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    types = {**dict.fromkeys(_FLOATS, float), "n": int}
    return text.astype({name: types[name] for name in text.columns if name in types})


def differences(
    found: pd.DataFrame, expected: pd.DataFrame, mean_tolerance: float = MEAN_TOLERANCE
) -> list[str]:
    """One sentence for everything that differs: cells and n exactly, means by more than is allowed.

    Allowed are the tolerance and what both intervals over seeds say together, whichever is more.
    """
    keys = [key for key in _KEYS if key in expected.columns]
    for name in [*keys, "mean", "n"]:
        for table, which in ((found, "found"), (expected, "expected")):
            if name not in table.columns:
                return [f"The {which} table has no column {name}."]
    ours, theirs = (_cells(table, keys) for table in (found, expected))
    sentences = [f"{cell}: expected, but not found." for cell in theirs if cell not in ours]
    sentences += [f"{cell}: found, but not expected." for cell in ours if cell not in theirs]
    for cell in (cell for cell in ours if cell in theirs):
        (mean, n, width), (wanted, wanted_n, wanted_width) = ours[cell], theirs[cell]
        allowed = max(mean_tolerance * max(1.0, abs(wanted)), math.hypot(width, wanted_width) / 2)
        if n != wanted_n:
            sentences.append(f"{cell}: n is {n}, expected {wanted_n}.")
        close = abs(mean - wanted) <= allowed  # false with nan
        both_nan = mean != mean and wanted != wanted
        if not close and not both_nan:
            sentences.append(f"{cell}: mean is {mean:.6g}, expected {wanted:.6g} within {allowed:.2g}.")
    return sentences


def _cells(table: pd.DataFrame, keys: list[str]) -> dict[str, tuple[float, int, float]]:
    """The mean, n and width of the interval of every cell."""
    texts = [
        [f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}" for value in table[key]]
        for key in keys
    ]
    names = [", ".join(row) for row in zip(*texts, strict=True)]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated} is there twice")
    known = {"low", "high"} <= set(table.columns)
    enough = table["n"] >= ENOUGH_SEEDS  # with fewer, nobody knows how much seeds differ
    widths = (table["high"] - table["low"]).where(enough, 0.0) if known else [0.0] * len(table)
    return dict(zip(names, zip(table["mean"], table["n"], widths, strict=True), strict=True))
