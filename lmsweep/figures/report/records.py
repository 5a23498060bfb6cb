"""What a drawn figure left behind: its record (JSON), picture (PNG) and numbers (CSV)."""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmsweep.errors import UserError

Verdict = Literal["holds", "fails", "not resolved", "not run"]
SCALES = ("smoke", "laptop", "paper")
PNG_START = b"\x89PNG\r\n\x1a\n"
PNG_END = b"IEND\xaeB`\x82"


class _Part(BaseModel):
    # Keys that the page does not show may come and go without breaking the page.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Claim(_Part):
    """A sentence of the paper beside what we found."""

    id: str
    says: str
    where: str | None = None
    verdict: Verdict
    ours: Any = None
    paper: Any = None
    n: int | None = None


class Selected(_Part):
    """The hyperparameters chosen for one cell, and the runs that have them."""

    panel: str | None = None
    method: str
    x: Any = None
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    val_accuracy: float | None = None
    runs: list[str] = Field(default_factory=list)


class Missing(_Part):
    """A cell of the grid without a number."""

    panel: str | None = None
    method: str
    x: Any = None
    reason: str


class Audit(_Part):
    """Whether the robustness of a run is real."""

    method: str
    run: str
    verdict: str
    reasons: list[str] = Field(default_factory=list)


class Cost(_Part):
    """What one training step costs."""

    method: str
    seconds_per_step: float | None = None
    ratio: float | None = None
    n: int | None = None


class Reference(_Part):
    """Points that others published."""

    panel: str | None = None
    name: str
    points: list[Any] = Field(default_factory=list)
    note: str | None = None


class Selection(_Part):
    """How hyperparameters were chosen."""

    rule: str
    sentence: str | None = None


class Record(_Part):
    """One figure at one scale."""

    figure: str
    scale: str
    title: str
    paper: str | None = None
    question: str | None = None
    command: str | None = None
    provenance: dict[str, Any]
    selection: Selection | None = None
    runs: list[str]
    evaluations: list[str] = Field(default_factory=list)
    seeds: list[int] = Field(default_factory=list)
    trained: int | None = None
    missing: list[Missing] = Field(default_factory=list)
    selected: list[Selected] = Field(default_factory=list)
    claims: list[Claim]
    audit: list[Audit] = Field(default_factory=list)
    cost: list[Cost] = Field(default_factory=list)
    references: list[Reference] = Field(default_factory=list)


@dataclass(frozen=True)
class Drawn:
    """A record with the files beside it; None for a picture or table that is not there or not whole."""

    record: Record
    png: bytes | None
    table: list[list[str]] | None
    files: list[str]


def read_records(folder: Path) -> list[Drawn]:
    """All figures below `folder`, in the paper's order, small scales first."""
    paths = [path for path in folder.glob("*/*.json") if not path.name.startswith(".")]
    return [_read(path) for path in sorted(paths, key=_order)]


def _order(path: Path) -> tuple[list[int | str], int, str]:
    # fig2 before fig10: every second part is a number, and counts as one.
    parts = re.split(r"(\d+)", path.stem)
    scale = path.parent.name
    return (
        [int(part) if place % 2 else part for place, part in enumerate(parts)],
        SCALES.index(scale) if scale in SCALES else len(SCALES),
        scale,
    )


def _read(path: Path) -> Drawn:
    files = [path.with_suffix(suffix) for suffix in (".png", ".pdf", ".csv", ".json")]
    return Drawn(
        record=_read_record(path),
        png=_read_png(path.with_suffix(".png")),
        table=_read_table(path.with_suffix(".csv")),
        files=[file.name for file in files if file.is_file()],
    )


def _read_record(path: Path) -> Record:
    scale = path.parent.name
    again = f"draw it again with `make reproduce-figure FIG={path.stem} SCALE={scale}`."
    try:
        record = Record.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UserError(f"{path} is damaged ({where}: {first['msg']}); {again}") from None
    except (ValueError, RecursionError) as error:  # neither JSON nor UTF-8
        raise UserError(f"{path} is damaged ({error}); {again}") from None
    if (record.figure, record.scale) != (path.stem, scale):
        raise UserError(
            f"{path} is damaged (by its content it is {record.figure} at {record.scale} scale); {again}"
        )
    return record


def _read_png(path: Path) -> bytes | None:
    data = path.read_bytes() if path.is_file() else b""
    return data if data.startswith(PNG_START) and data.endswith(PNG_END) else None


def _read_table(path: Path) -> list[list[str]] | None:
    if not path.is_file():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error):
        return None
    return rows if rows and all(len(row) == len(rows[0]) for row in rows) else None
