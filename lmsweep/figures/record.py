"""The JSON beside a figure: what was asked, what was trained, what was chosen, what the paper said.

One schema for those who write it and all who read it. `lmsweep store gc` alone reads a record without
the schema, because the store knows nothing of figures: it takes `runs`.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from lmsweep.figures.select import WEIGHTS, told
from lmsweep.figures.spec import FigureSpec, Reference
from lmsweep.figures.statistics import RULE, Verdict
from lmsweep.figures.words import text
from lmsweep.files import DamagedError, digest, read_json, write_json

SCALES = ("smoke", "laptop", "workstation", "paper")  # small ones first


class _Part(BaseModel):
    # A later version may write further keys, which this version does not show.
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Selection(_Part):
    """How hyperparameters and weights were chosen."""

    rule: str
    checkpoint: str
    sentence: str


class Missing(_Part):
    """A cell of the grid without a number."""

    panel: str
    method: str
    x: float
    reason: str


class Selected(_Part):
    """The hyperparameters chosen for one cell, and the runs that have them."""

    panel: str
    method: str
    x: float
    hyperparameters: dict[str, Any]
    val_accuracy: float
    runs: list[str]


class JudgedClaim(_Part):
    """A claim of the paper beside what we found."""

    id: str
    says: str
    where: str
    kind: str
    verdict: Verdict
    ours: str
    paper: str
    n: int
    scale: str


class ClaimRow(NamedTuple):
    """A claim as a row of text; who shows fewer columns leaves some out."""

    verdict: str
    says: str
    where: str
    paper: str
    ours: str
    n: str


HEAD = ClaimRow("verdict", "the paper says", "where", "paper", "ours", "n")


def claim_rows(claims: Iterable[JudgedClaim]) -> list[ClaimRow]:
    """One row per claim: for the terminal, the Markdown page, the HTML report and W&B's report."""
    return [ClaimRow(*(text(getattr(claim, key)) for key in ClaimRow._fields)) for claim in claims]


class Audit(_Part):
    """Whether the robustness of a run is real."""

    method: str
    run: str
    verdict: str
    reasons: list[str]


class Record(_Part):
    """One figure at one scale; the file has these keys in this order."""

    figure: str
    scale: str
    title: str
    paper: str
    question: str
    command: str
    provenance: dict[str, Any]
    training: dict[str, Any]  # what the runs took, and on which machines
    selection: Selection
    intervals: str  # how they were made; "bootstrap" in records of the old rule, which are too narrow
    runs: list[str]
    evaluations: list[str]
    seeds: list[int]
    pilot_seeds: list[int] = []  # those that chose the settings and are in no mean; none where all seeds did
    trained: int
    missing: list[Missing]
    selected: list[Selected]
    claims: list[JudgedClaim]
    audit: list[Audit]
    references: list[Reference]
    table: str = ""  # the checksum of the CSV beside the record


def build_record(
    spec: FigureSpec, points: pd.DataFrame, table: pd.DataFrame, *, halving: int | None = None, **rest: Any
) -> Record:
    """Everything about a figure but its picture: the same store gives the same record.

    `points` are the selected ones; a table without the column `selected` (distances) has no choice to tell.
    `rest` has the keys that do not follow from the figure's file, its points and its table.
    """
    return Record.model_validate(
        {
            "figure": spec.name,
            **{key: getattr(spec, key) for key in ("title", "paper", "question", "references")},
            "selection": {
                "rule": spec.selection,
                "checkpoint": spec.checkpoint,
                "sentence": " ".join(
                    [*told(spec.selection, rest["pilot_seeds"], halving), WEIGHTS[spec.checkpoint]]
                ),
            },
            "intervals": RULE,
            "runs": sorted(set(points["run"])),
            "seeds": sorted({int(seed) for seed in points["seed"]}),
            "selected": _selected(table) if "selected" in table else [],
            **rest,
        }
    )


def _selected(table: pd.DataFrame) -> list[dict[str, Any]]:
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


def write_record(record: Record, path: Path) -> None:
    """Write the record in one step, with the checksum of the CSV that is there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = path.with_suffix(".csv")
    known = {"table": digest(table.read_bytes())} if table.is_file() else {}
    write_json(path, {**record.model_dump(), **known})


def read_record(path: Path) -> Record:
    """Read what `write_record` wrote; a damaged file is an error that says how to make it again."""
    scale = path.parent.name
    again = f"draw it again with `make reproduce-figure FIG={path.stem} SCALE={scale}`"
    try:
        record = Record.model_validate(read_json(path, again))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DamagedError(path, f"{where}: {first['msg']}", again) from None
    if (record.figure, record.scale) != (path.stem, scale):
        raise DamagedError(path, f"by its content it is {record.figure} at {record.scale} scale", again)
    return record


def read_records(folder: Path, damaged: list[str] | None = None) -> dict[Path, Record]:
    """All records in <folder>/<scale>/, by their files: in the paper's order, small scales first.

    `damaged` gets a sentence about every record that cannot be read; without it, the first one is an error.
    """
    paths = [path for path in folder.glob("*/*.json") if not path.name.startswith(".")]
    found = {}
    for path in sorted(paths, key=_order):
        try:
            found[path] = read_record(path)
        except DamagedError as error:
            if damaged is None:
                raise
            damaged.append(str(error))
    return found


def _order(path: Path) -> tuple[list[int | str], int, str]:
    # fig2 before fig10: every second part is a number, and counts as one.
    parts = re.split(r"(\d+)", path.stem)
    scale = path.parent.name
    return (
        [int(part) if place % 2 else part for place, part in enumerate(parts)],
        SCALES.index(scale) if scale in SCALES else len(SCALES),
        scale,
    )
