"""What the page says about one figure at one scale, made ready for the template."""

import base64
import re
import struct
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from lmsweep.config.dotted import dotted
from lmsweep.figures.report.format import count, is_numeric, shorter, text
from lmsweep.figures.report.records import Drawn, Missing, Record, Selected
from lmsweep.figures.style import method_style

ROWS_SHOWN = 200
PIXELS_PER_CSS_PIXEL = (
    1.5  # pictures are made for 200 dpi on paper: sharp, and their 8 pt text is read with ease
)


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
    """One figure at one scale."""

    record: Record
    anchor: str
    files: dict[str, str]
    picture: Picture | None
    numbers: Numbers | None
    shared: dict[str, str]
    choices: list[Choice]
    missing: list[tuple[Missing, list[str]]]


def section(drawn: Drawn) -> Section:
    """Everything the template needs, so that it only has to lay it out."""
    record = drawn.record
    shared, choices = _hyperparameters(record.selected)
    below = f"../figures/{quote(record.scale, safe='')}"
    return Section(
        record=record,
        anchor=anchor(record.figure, record.scale),
        files={name.rpartition(".")[2].upper(): f"{below}/{quote(name, safe='')}" for name in drawn.files},
        picture=_picture(drawn),
        numbers=_numbers(drawn.table) if drawn.table else None,
        shared=shared,
        choices=choices,
        missing=_missing(record.missing),
    )


def anchor(*names: str) -> str:
    """An id that may stand in a link."""
    return re.sub(r"[^\w-]+", "-", "--".join(names))


def _picture(drawn: Drawn) -> Picture | None:
    if drawn.png is None:
        return None
    width, height = struct.unpack(">II", drawn.png[16:24])
    return Picture(
        uri="data:image/png;base64," + base64.b64encode(drawn.png).decode(),
        width=round(width / PIXELS_PER_CSS_PIXEL),
        height=round(height / PIXELS_PER_CSS_PIXEL),
        alt=_alt(drawn),
    )


def _alt(drawn: Drawn) -> str:
    record = drawn.record
    said = [f"{record.title}: our version of {record.paper or record.figure} at {record.scale} scale"]
    panels = list(dict.fromkeys(_column(drawn.table, "panel")))
    methods = [method_style(name).label for name in dict.fromkeys(_column(drawn.table, "method"))]
    said += [f"{count(len(panels), 'panel')} ({', '.join(panels)})"] if panels else []
    said += [f"{count(len(methods), 'method')} ({' / '.join(methods)})"] if methods else []
    if drawn.table:
        said.append("the table below the picture has the numbers")
    return "; ".join(said) + "."


def _column(table: list[list[str]] | None, name: str) -> list[str]:
    if not table or name not in table[0]:
        return []
    place = table[0].index(name)
    return [row[place] for row in table[1:] if row[place]]


def _numbers(table: list[list[str]]) -> Numbers:
    header, *rows = table
    # `setting` is JSON of all hyperparameters, which have a table of their own.
    shown = sorted((name != "panel", place) for place, name in enumerate(header) if name != "setting")
    places = [place for _, place in shown]
    return Numbers(
        header=[header[place] for place in places],
        numeric=[header[p] != "selected" and is_numeric(row[p] for row in rows) for p in places],
        rows=[
            [row[p] if header[p] == "selected" else shorter(row[p]) for p in places]
            for row in rows[:ROWS_SHOWN]
        ],
        total=len(rows),
    )


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
