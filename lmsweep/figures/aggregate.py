"""From points to a table: mean and 95% interval over seeds, and which cells have none."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lmsweep.figures.spec import FigureSpec
from lmsweep.seeds import derive_seed

DRAWS = 10_000
COLUMNS = ["method", "x", "mean", "low", "high", "n", "selected", "panel", "setting", "val"]


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


def aggregate(points: pd.DataFrame) -> pd.DataFrame:
    """One row per panel, method and x of selected points; points without a y are left out."""
    rows = []
    finite = points[points["y"].notna()].sort_values(["panel", "method", "x", "seed"])
    for key, cell in finite.groupby(["panel", "method", "x"]):
        panel, method, x = str(key[0]), str(key[1]), float(cell["x"].iloc[0])
        if cell["seed"].duplicated().any():
            raise ValueError(f"{panel}/{method}/{x}: a seed is there twice; select a setting first")
        y = cell["y"].to_numpy(dtype=float)
        low, high = interval(y, f"{panel}/{method}/{x!r}")
        rows.append(
            {
                "method": method,
                "x": x,
                "mean": float(y.mean()),
                "low": low,
                "high": high,
                "n": len(y),
                "selected": " ".join(cell["run"]),
                "panel": panel,
                "setting": cell["setting"].iloc[0],
                "val": float(cell["val"].mean()),
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def ordered(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """The rows in the order of the figure: panels, methods as the legend names them, x."""
    places = {
        (panel.name, method): (i, j)
        for i, panel in enumerate(spec.panels)
        for j, method in enumerate(panel.methods)
    }
    strangers = sorted(set(zip(table["panel"], table["method"], strict=True)) - set(places))
    if strangers:
        raise ValueError(f"{spec.name} has no panel and method {strangers[0]}")
    keys = [
        (*places[panel, method], x)
        for panel, method, x in zip(table["panel"], table["method"], table["x"], strict=True)
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return table.iloc[order].reset_index(drop=True)


def missing(
    points: pd.DataFrame, spec: FigureSpec, expected: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The `expected` cells (panel, method, x, reason) that no point with a y is in, in the figure's order."""
    finite = points[points["y"].notna()]
    there = {
        (panel, method, x_key(x))
        for panel, method, x in zip(finite["panel"], finite["method"], finite["x"], strict=True)
    }
    cells = {(cell["panel"], cell["method"], x_key(cell["x"])): cell for cell in expected}
    columns = ["panel", "method", "x", "reason"]
    gone = pd.DataFrame([dict(cell) for key, cell in cells.items() if key not in there], columns=columns)
    return [
        {"panel": panel, "method": method, "x": float(x), "reason": reason}
        for panel, method, x, reason in ordered(gone, spec).itertuples(index=False)
    ]


def x_key(x: float) -> float:
    """The same number for 0.1 + 0.2 and 0.3: one place on an axis."""
    return float(f"{x:.9g}")
