"""From the store to points: one row per run, panel and x."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lmsweep.config.dotted import dotted
from lmsweep.config.run import RunConfig
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.store.store import Store

COLUMNS = ["panel", "method", "x", "seed", "y", "run", "setting", "val"]
# What makes a method what it is called, or a run another sample of the same: no hyperparameters.
NOT_A_HYPERPARAMETER = (
    *("seed", "method.criterion", "method.margin", "adversarial.kind"),
    *("margin.norm", "margin.layers", "margin.score", "margin.exact"),
)
COST = ["method", "seconds_per_step", "ratio", "n"]
DISTANCE_METRIC = "test_distance_"  # of panels over training steps: the layer's name follows
SPLITS = {"train": "train", "val": "validation", "test": "test"}

Runs = Mapping[str, RunConfig]


def settings(runs: Runs, axes: Iterable[str]) -> dict[str, str]:
    """The hyperparameters of each run as JSON: the keys in which the runs differ, but for `axes`."""
    return _settings(_identities(runs), axes)


def _identities(runs: Runs) -> dict[str, dict[str, Any]]:
    return {name: dotted(config.identity_dict()) for name, config in runs.items()}


def _settings(identities: Mapping[str, Mapping[str, Any]], axes: Iterable[str]) -> dict[str, str]:
    fixed = (*NOT_A_HYPERPARAMETER, *axes)
    varying = [key for key in sorted(_varying(identities.values())) if not key.startswith(fixed)]
    return {
        name: json.dumps({key: keys[key] for key in varying if key in keys})
        for name, keys in identities.items()
    }


def _varying(runs: Iterable[Mapping[str, Any]]) -> set[str]:
    """The keys that have different values in two runs; 1 and 1.0 are different."""
    first: dict[str, Any] = {}
    found = set()
    for keys in runs:
        for key, value in keys.items():
            known = first.setdefault(key, value)
            # A sweep may have a million values, nearly all equal, and repr is ten times faster than json.
            if value is known or key in found or repr(value) == repr(known):
                continue
            if json.dumps(value) != json.dumps(known):
                found.add(key)
    return found


def run_rows(runs: Runs, store: Store, axes: Iterable[str]) -> pd.DataFrame:
    """One row per finished run: id, method, seed, setting, validation accuracy, results and axes."""
    chosen = list(axes)
    identities = _identities(runs)
    hyperparameters = _settings(identities, chosen)
    rows = []
    for name, config in runs.items():
        results = store.folder(name).read_results()
        if results is not None:
            keys = identities[name]
            rows.append(
                {
                    "run": name,
                    "method": config.method_name(),
                    "seed": config.seed,
                    "setting": hyperparameters[name],
                    **results["metrics"],
                    **{key: keys.get(key, math.nan) for key in chosen},
                    "seconds_per_step": results["train_seconds"] / results["metrics"]["steps"],
                }
            )
    columns = ["run", "method", "seed", "setting", "val_accuracy", "seconds_per_step", *chosen]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)


def axes_of(spec: FigureSpec) -> list[str]:
    """The keys of runs that the figure's panels have on their x axis."""
    keys = dict.fromkeys(panel.x.key for panel in spec.panels if panel.x.key not in (None, "step"))
    return [str(key) for key in keys]


def key_points(panel: Panel, rows: pd.DataFrame, curves: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The points of a panel over a key of the runs; those of y.attack have no y where `curves` lacks them."""
    mine = rows[rows["method"].isin(panel.methods)]
    if mine.empty:
        return pd.DataFrame(columns=COLUMNS)
    placed = mine.assign(_x=pd.Series(on_axis(mine[panel.x.key]), mine.index)).explode("_x")
    if panel.y.attack is None:
        return _points(panel.name, placed, placed["_x"], placed[panel.y.metric])
    return _points(panel.name, placed, placed["_x"], [_at(panel, curves.get(run)) for run in placed["run"]])


def on_axis(values: Iterable[float]) -> list[list[float]]:
    """Where runs with these values of a key stand on its axis.

    A run that has no such key (nan: cross-entropy has no gamma) stands wherever another does: a level line.
    """
    given = [float(value) for value in values]
    every = sorted({value for value in given if not math.isnan(value)})
    return [every if math.isnan(value) else [value] for value in given]


def _at(panel: Panel, curve: Mapping[str, Any] | None) -> float:
    return math.nan if curve is None else curve["accuracy"][curve["strengths"].index(panel.y.at)]


def attack_points(panel: Panel, rows: pd.DataFrame, curves: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The points of a panel over an attack's strength; `curves` maps runs to the results of evaluations.

    A run that was not evaluated gets one row without x and y, so that selection sees all settings.
    """
    parts = [pd.DataFrame(columns=COLUMNS)]
    for _, row in rows[rows["method"].isin(panel.methods)].iterrows():
        curve = curves.get(row["run"], {"strengths": [float("nan")], "accuracy": [float("nan")]})
        one = pd.DataFrame([row] * len(curve["strengths"]))
        parts.append(_points(panel.name, one, curve["strengths"], curve["accuracy"]))
    return together(parts)


def distance_points(panel: Panel, rows: pd.DataFrame, store: Store) -> pd.DataFrame:
    """The points of a panel over training steps, for every split: the column `split` says which."""
    layer = panel.y.metric.removeprefix(DISTANCE_METRIC)
    parts = [pd.DataFrame(columns=[*COLUMNS, "split"])]
    for _, row in rows[rows["method"].isin(panel.methods)].iterrows():
        folder = store.folder(row["run"])
        lines = [json.loads(line) for line in folder.read_file(folder.metrics).splitlines()]
        for split, name in SPLITS.items():
            key = f"distance/{split}/{layer}"
            measured = [(line["step"], line[key]) for line in lines if key in line]
            one = pd.DataFrame([row] * len(measured), columns=rows.columns)
            points = _points(panel.name, one, [x for x, _ in measured], [y for _, y in measured])
            parts.append(points.assign(split=name))
    return together(parts)


def _points(panel: str, rows: pd.DataFrame, x: Iterable[float], y: Iterable[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "panel": panel,
            "method": rows["method"].to_list(),
            "x": [float(value) for value in x],
            "seed": rows["seed"].to_list(),
            "y": [float(value) for value in y],
            "run": rows["run"].to_list(),
            "setting": rows["setting"].to_list(),
            "val": rows["val_accuracy"].to_list(),
        },
        columns=COLUMNS,
    )


def together(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All parts as one table; without any row it is the first part, which has the columns."""
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else parts[0]


def cost_rows(rows: pd.DataFrame, methods: Iterable[str]) -> list[dict[str, Any]]:
    """Median seconds of a training step per method, and how many times cross-entropy's that is."""
    seconds = {method: rows[rows["method"] == method]["seconds_per_step"] for method in methods}
    base = float(seconds["xent"].median()) if "xent" in seconds else math.nan
    return [
        {
            "method": method,
            "seconds_per_step": float(values.median()),
            "ratio": None if math.isnan(base) else float(values.median()) / base,
            "n": len(values),
        }
        for method, values in seconds.items()
        if len(values)
    ]
