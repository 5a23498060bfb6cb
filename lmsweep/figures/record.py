"""The JSON beside a figure: what was asked, what was trained, what was chosen, what the paper said."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lmsweep.figures.select import SENTENCES
from lmsweep.figures.spec import FigureSpec
from lmsweep.files import write_atomically

Rows = Sequence[Mapping[str, Any]]


def build_record(
    spec: FigureSpec,
    *,
    scale: str,
    command: str,
    provenance: Mapping[str, Any],
    points: pd.DataFrame,
    table: pd.DataFrame,
    trained: int,
    missing: Rows = (),
    evaluations: Iterable[str] = (),
    claims: Rows = (),
    audit: Rows = (),
    cost: Rows = (),
) -> dict[str, Any]:
    """Everything about a figure but its picture, without times: the same store gives the same record.

    `points` are the selected ones; a table without the column `selected` (distances) has no choice to tell.
    """
    return {
        "figure": spec.name,
        "scale": scale,
        "title": spec.title,
        "paper": spec.paper,
        "question": spec.question,
        "command": command,
        "provenance": dict(provenance),
        "selection": {"rule": spec.selection, "sentence": SENTENCES[spec.selection]},
        "runs": sorted(set(points["run"])),
        "evaluations": sorted(set(evaluations)),
        "seeds": sorted({int(seed) for seed in points["seed"]}),
        "trained": trained,
        "missing": [dict(cell) for cell in missing],
        "selected": selected(table) if "selected" in table else [],
        "claims": [dict(claim) for claim in claims],
        "audit": [dict(row) for row in audit],
        "cost": [dict(row) for row in cost],
        "references": [reference.model_dump() for reference in spec.references],
    }


def selected(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The hyperparameters behind every point."""
    columns = ["panel", "method", "x", "setting", "val", "selected"]
    return [
        {
            "panel": panel,
            "method": method,
            "x": float(x),
            "hyperparameters": json.loads(setting),
            "val_accuracy": float(val),
            "runs": runs.split(),
        }
        for panel, method, x, setting, val, runs in table[columns].itertuples(index=False)
    ]


def write_record(record: Mapping[str, Any], path: Path) -> None:
    """Write the record in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(record, indent=2, allow_nan=False) + "\n")
