"""What the page says about one figure at one scale, made ready for the template."""

import base64
import csv
import io
import re
import struct
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from lmsweep.config.dotted import dotted
from lmsweep.figures.claims.verdicts import ClaimRow, claim_rows
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.record import Missing, Record, Selected
from lmsweep.figures.words import count, text
from lmsweep.files import digest

ROWS_SHOWN = 200
# Pictures are made for 200 dpi on paper: this large they are sharp, and their 8 pt text is read with ease.
PIXELS_PER_CSS_PIXEL = 1.5
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
Table = list[list[str]]


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page."""

    uri: str
    width: int
    height: int
    alt: str


@dataclass(frozen=True)
class Numbers:
    """The CSV, without the columns that the page shows elsewhere."""

    header: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    total: int


@dataclass(frozen=True)
class Choice:
    """Neighbouring cells with the same runs, and the hyperparameters in which they differ from others."""

    cell: Selected
    places: list[str]
    differing: dict[str, str]


@dataclass(frozen=True)
class Section:
    """One figure at one scale; None for a picture or table that is not there or not whole."""

    record: Record
    anchor: str
    claims: list[ClaimRow]
    files: dict[str, str]
    picture: Picture | None
    numbers: Numbers | None
    shared: dict[str, str]
    choices: list[Choice]
    missing: list[tuple[Missing, list[str]]]


def section(path: Path, record: Record) -> Section:
    """Everything the template needs, so that it only has to lay it out; `path` is the record's file."""
    table = _read_table(path.with_suffix(".csv"), record.table)
    shared, choices = _hyperparameters(record.selected)
    below = f"../figures/{quote(record.scale, safe='')}"
    files = [path.with_suffix(suffix) for suffix in (".png", ".pdf", ".csv", ".json")]
    return Section(
        record=record,
        anchor=anchor(record.figure, record.scale),
        claims=claim_rows(record.claims),
        files={f.suffix[1:].upper(): f"{below}/{quote(f.name, safe='')}" for f in files if f.is_file()},
        picture=_picture(path.with_suffix(".png"), _alt(record, table)),
        numbers=_numbers(table) if table else None,
        shared=shared,
        choices=choices,
        missing=_missing(record.missing),
    )


def anchor(*names: str) -> str:
    """An id that may stand in a link."""
    return re.sub(r"[^\w-]+", "-", "--".join(names))


def _picture(path: Path, alt: str) -> Picture | None:
    png = path.read_bytes() if path.is_file() else b""
    if not (png.startswith(PNG_START) and png.endswith(PNG_END)):
        return None
    width, height = (round(size / PIXELS_PER_CSS_PIXEL) for size in struct.unpack(">II", png[16:24]))
    return Picture("data:image/png;base64," + base64.b64encode(png).decode(), width, height, alt)


def _read_table(path: Path, checksum: str) -> Table | None:
    data = path.read_bytes() if path.is_file() else b""
    if checksum not in ("", digest(data)):
        return None  # changed since the figure was drawn
    try:
        rows = [row for row in csv.reader(io.StringIO(data.decode(), newline="")) if row]
    except (UnicodeDecodeError, csv.Error):
        return None
    return rows if rows and all(len(row) == len(rows[0]) for row in rows) else None


def _alt(record: Record, table: Table | None) -> str:
    said = [f"{record.title}: our version of {record.paper} at {record.scale} scale"]
    panels = list(dict.fromkeys(_column(table, "panel")))
    methods = [method_style(name).label for name in dict.fromkeys(_column(table, "method"))]
    said += [f"{count(len(panels), 'panel')} ({', '.join(panels)})"] if panels else []
    said += [f"{count(len(methods), 'method')} ({' / '.join(methods)})"] if methods else []
    said += ["the table below the picture has the numbers"] if table else []
    return "; ".join(said) + "."


def _column(table: Table | None, name: str) -> list[str]:
    if not table or name not in table[0]:
        return []
    place = table[0].index(name)
    return [row[place] for row in table[1:] if row[place]]


def _numbers(table: Table) -> Numbers:
    header, *rows = table
    # `setting` is JSON of all hyperparameters, which have a table of their own.
    shown = sorted((name != "panel", place) for place, name in enumerate(header) if name != "setting")
    places = [place for _, place in shown]
    return Numbers(
        header=[header[place] for place in places],
        numeric=[header[p] != "selected" and _is_numeric([row[p] for row in rows]) for p in places],
        rows=[
            [row[p] if header[p] == "selected" else _shorter(row[p]) for p in places]
            for row in rows[:ROWS_SHOWN]
        ],
        total=len(rows),
    )


def _shorter(cell: str) -> str:
    """A number to 4 digits; anything else unchanged."""
    return f"{float(cell):.4g}" if NUMBER.fullmatch(cell) and "." in cell else cell


def _is_numeric(cells: list[str]) -> bool:
    """Whether a column holds numbers only, gaps aside."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(NUMBER.fullmatch(cell) for cell in filled)


def _hyperparameters(cells: list[Selected]) -> tuple[dict[str, str], list[Choice]]:
    """Split into what all cells share that have the key at all, and what tells cells apart."""
    settings = [{key: text(value) for key, value in dotted(cell.hyperparameters).items()} for cell in cells]
    keys = dict.fromkeys(key for setting in settings for key in setting)
    values = {key: {setting[key] for setting in settings if key in setting} for key in keys}
    shared = {key: next(iter(found)) for key, found in values.items() if len(found) == 1}
    # Under an attack one choice serves every strength, and is told once.
    groups = groupby(
        zip(cells, settings, strict=True),
        key=lambda pair: (pair[0].panel, pair[0].method, pair[0].runs, pair[1]),
    )
    choices = []
    for _, group in groups:
        (first, setting), *others = group
        places = [text(first.x), *(text(cell.x) for cell, _ in others)]
        differing = {key: value for key, value in setting.items() if key not in shared}
        choices.append(Choice(first, places, differing))
    return shared, choices


def _missing(cells: list[Missing]) -> list[tuple[Missing, list[str]]]:
    """One line per panel, method and reason, with all its x."""
    groups = groupby(cells, key=lambda cell: (cell.panel, cell.method, cell.reason))
    lines = [list(group) for _, group in groups]
    return [(line[0], [text(cell.x) for cell in line]) for line in lines]
