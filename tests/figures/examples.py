"""Figures and points made by hand."""

import copy
from typing import Any

import pandas as pd

from lmsweep.figures.spec import FigureSpec, parse_figure

ACCURACY = {"metric": "test_accuracy", "label": "test accuracy", "unit": "percent"}
ATTACKED = {**ACCURACY, "metric": "accuracy"}
NOISE = {"key": "data.label_noise", "label": "label noise", "unit": "percent"}
METHODS = ["xent", "margin_l1_all", "margin_l2_all"]
FIGURE: dict[str, Any] = {
    "name": "fig2_test",
    "title": "MNIST, noisy labels",
    "paper": "Figure 2 (left)",
    "question": "Does the margin help under noise?",
    "kind": "curves",
    "selection": "best_validation",
    "panels": [
        {"name": "noise", "title": "Noisy labels", "x": NOISE, "y": ACCURACY, "methods": METHODS},
        {
            "name": "white",
            "title": "White-box",
            "x": {"attack": "white_ifgsm", "label": "epsilon"},
            "y": ATTACKED,
            "methods": ["margin_l2_all", "xent"],
        },
    ],
    "attacks": {"white_ifgsm": {"overrides": ["attack=ifgsm", "source=self"]}},
    "references": [
        {"panel": "noise", "name": "Others 2017", "points": [[0.2, 0.9], [0.4, 0.85]], "note": "a"}
    ],
    "claims": [],
}
VALUE = {"id": "v", "says": "It is so.", "where": "Sec. 4", "kind": "value", "panel": "noise"}
GREATER = {**VALUE, "kind": "greater", "pairs": [["margin_l2_all", "xent"]], "at": "all"}


def config(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FIGURE), **copy.deepcopy(changes)}


def figure(*claims: dict[str, Any], **changes: Any) -> FigureSpec:
    return parse_figure(config(claims=list(claims), **changes), "sweeps/fig2_test.yaml")


def cell(
    panel: str, method: str, x: float, ys: list[float], vals: list[float] | None = None, setting: str = "{}"
) -> pd.DataFrame:
    """One setting at one x: a run per seed."""
    return pd.DataFrame(
        {
            "panel": panel,
            "method": method,
            "x": float(x),
            "place": 0.0 if panel == "white" else float(x),  # as under an attack
            "seed": range(len(ys)),
            "y": ys,
            "run": [f"{method}{setting}{seed}" for seed in range(len(ys))],
            "setting": setting,
            "val": vals or [0.5] * len(ys),
        }
    )


def points(*cells: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(cells, ignore_index=True)
