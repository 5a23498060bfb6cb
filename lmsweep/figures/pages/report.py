"""The report: every drawn figure, its claims and where its numbers come from, on one static page."""

import base64
import csv
import hashlib
import io
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lmsweep.config.identity import dotted
from lmsweep.errors import UserError
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.pages.grids import METRIC, axes_of, cells, draw_grid
from lmsweep.figures.record import Missing, Record, Selected, claim_rows, read_records
from lmsweep.figures.statistics import Verdict
from lmsweep.figures.words import count, text, version_of
from lmsweep.files import digest, write_atomically

ROWS_SHOWN = 200
# Pictures have 200 dots per inch for print; at this size on a screen their 8 pt text is easy to read.
PIXELS_PER_CSS_PIXEL = 1.5
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
T = TypeVar("T", Missing, Selected)
Section = dict[str, Any]  # what the template lays out
Grids = Mapping[str, pd.DataFrame]  # a row per run of every sweep without a figure file, by its name


def section(path: Path, record: Record) -> Section:
    """What the page says about one figure at one scale; `path` is the record's file.

    A picture or a table that is not there, or not whole, is None.
    """
    table = _read_table(path.with_suffix(".csv"), record.table)
    shared, choices = _hyperparameters(record.selected)
    below = f"../figures/{quote(record.scale, safe='')}"
    files = [path.with_suffix(suffix) for suffix in (".png", ".pdf", ".csv", ".json")]
    return {
        "record": record,
        "anchor": anchor(record.figure, record.scale),
        "claims": claim_rows(record.claims),
        "files": {f.suffix[1:].upper(): f"{below}/{quote(f.name, safe='')}" for f in files if f.is_file()},
        "picture": _picture(_bytes(path.with_suffix(".png")), _alt(record, table)),
        "numbers": None if table is None else _numbers(table),
        "shared": shared,
        "choices": choices,
        "missing": _places(record.missing, lambda cell: (cell.panel, cell.method, cell.reason)),
    }


def anchor(*names: str) -> str:
    """An id that may stand in a link."""
    return re.sub(r"[^\w-]+", "-", "--".join(names))


def grid_section(name: str, rows: pd.DataFrame) -> Section:
    """What the page says about a grid without a figure file; `rows` are its runs."""
    done = int((rows["state"] == "done").sum())
    told: Section = {"name": name, "anchor": anchor("grid", name), "total": len(rows), "done": done}
    if not done:
        return {**told, "numbers": None, "picture": None}
    table = cells(rows, METRIC)
    alt = f"{name}: {METRIC} against {', '.join(axes_of(table))}; the table below has the numbers."
    numbers = _numbers(table.astype(object).where(table.notna(), "").map(str))
    return {**told, "numbers": numbers, "picture": _picture(draw_grid(table, name), alt)}


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _picture(png: bytes, alt: str) -> dict[str, Any] | None:
    if not (png.startswith(PNG_START) and png.endswith(PNG_END)):
        return None
    width, height = (round(size / PIXELS_PER_CSS_PIXEL) for size in struct.unpack(">II", png[16:24]))
    uri = "data:image/png;base64," + base64.b64encode(png).decode()
    return {"uri": uri, "width": width, "height": height, "alt": alt}


def _read_table(path: Path, checksum: str) -> pd.DataFrame | None:
    """The CSV as text."""
    data = _bytes(path)
    if checksum not in ("", digest(data)):
        return None  # changed since the figure was drawn
    try:
        head, *rows = [row for row in csv.reader(io.StringIO(data.decode(), newline="")) if row]
        return pd.DataFrame(rows, columns=head) if len(set(head)) == len(head) else None
    except (ValueError, csv.Error):  # not UTF-8, empty, or with lines of different lengths
        return None


def _alt(record: Record, table: pd.DataFrame | None) -> str:
    said = [f"{record.title}: {version_of(record.paper)} at {record.scale} scale"]
    if table is not None:
        distinct = {name: list(filter(None, table[name].unique())) for name in table}
        panels, names = distinct.get("panel"), distinct.get("method", ())
        methods = [method_style(name).label for name in names]
        said += [f"{count(len(panels), 'panel')} ({', '.join(panels)})"] if panels else []
        said += [f"{count(len(methods), 'method')} ({' / '.join(methods)})"] if methods else []
        said += ["the table below the picture has the numbers"]
    return "; ".join(said) + "."


def _numbers(table: pd.DataFrame) -> dict[str, Any]:
    """The CSV, without the columns that the page shows elsewhere."""
    # `setting` is JSON of all hyperparameters, which have a table of their own; the picture shows the seeds.
    shown = [str(name) for name in table if name not in ("setting", "values")]
    shown.sort(key=lambda name: name != "panel")
    numbers = [name for name in shown if name != "selected"]
    short = table.head(ROWS_SHOWN).assign(**{name: table[name].map(_shorter) for name in numbers})
    return {
        "header": shown,
        "numeric": [name for name in numbers if _is_numeric(table[name])],
        "rows": short[shown].to_numpy().tolist(),
        "total": len(table),
    }


def _shorter(value: str) -> str:
    """A number to 4 digits; anything else unchanged."""
    return f"{float(value):.4g}" if NUMBER.fullmatch(value) and "." in value else value


def _is_numeric(values: "pd.Series[str]") -> bool:
    """Whether a column holds numbers only, gaps aside."""
    filled = [value for value in values if value]
    return bool(filled) and all(map(NUMBER.fullmatch, filled))


def _hyperparameters(cells: list[Selected]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """What all cells share that have the key at all, and per cell what tells it apart from others."""

    def setting(cell: Selected) -> dict[str, str]:
        return {key: text(value) for key, value in dotted(cell.hyperparameters).items()}

    values: dict[str, set[str]] = {}
    for key, value in (pair for cell in cells for pair in setting(cell).items()):
        values.setdefault(key, set()).add(value)
    shared = {key: next(iter(found)) for key, found in values.items() if len(found) == 1}
    # Under an attack one choice serves every strength, and is told once.
    told = _places(cells, lambda cell: (cell.panel, cell.method, cell.runs, setting(cell)))
    choices = []
    for cell, places in told:
        differing = {key: value for key, value in setting(cell).items() if key not in shared}
        choices.append({"cell": cell, "places": places, "differing": differing})
    return shared, choices


def _places(cells: Sequence[T], key: Callable[[T], Any]) -> list[tuple[T, list[str]]]:
    """Of neighbouring cells with the same key the first one, and all their x."""
    groups = [list(group) for _, group in groupby(cells, key)]
    return [(group[0], [text(cell.x) for cell in group]) for group in groups]


FILTERS = {
    "text": text,
    "count": count,
    "version_of": version_of,
    "anchor": anchor,
    "percent": "{:.2%}".format,
    "url": lambda name: quote(name, safe=""),
}
# A sign beside the word, for readers who do not see the colour, and what the verdict means.
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("✓", "our numbers agree, and the 95% intervals over seeds leave no doubt"),
    "fails": ("✗", "our numbers disagree, and the intervals leave no doubt"),
    "not resolved": ("≈", "the intervals allow both, or there are fewer than 3 seeds"),
    "not run": ("○", "something that the claim needs was not run, or cannot be seen in the figure"),
}


def write_report(outputs: Path, grids: Grids | None = None) -> Path:
    """Write <outputs>/report/index.html from all figures drawn so far and from `grids`; return its path.

    The same records and grids give the same bytes.
    """
    damaged: list[str] = []
    records = read_records(outputs / "figures", damaged)
    if not records and not grids:
        raise UserError(
            f"There are no figures in {outputs / 'figures'} to report; draw one with `make reproduce-figure`."
            + " ".join(["", *damaged])
        )
    for sentence in damaged:
        print(sentence, file=sys.stderr, flush=True)
    sections = [section(path, record) for path, record in records.items()]
    figures = groupby(sections, key=lambda one: one["record"].figure)
    script, style = part("page.js"), part("page.css")
    page = rendered(
        "page.html",
        script=script,
        style=style,
        policy=policy(style, script),
        figures=[(figure, list(scales)) for figure, scales in figures],
        sections=sections,
        grids=[grid_section(name, rows) for name, rows in (grids or {}).items()],
        counts=_counts(records.values()),
        verdicts=VERDICTS,
        rows_shown=ROWS_SHOWN,
    )
    path = outputs / "report" / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    # "replace": half of a surrogate pair is legal in JSON and cannot be written as UTF-8.
    write_atomically(path, page.encode(errors="replace"))
    return path


def part(name: str) -> Markup:
    """A style or a script of this package, which stands in a page as it is."""
    file = files("lmsweep.figures.pages").joinpath("templates", name)
    return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - a file of this package


def rendered(template: str, **values: Any) -> str:
    """The page that a template of this package makes of these values."""
    jinja = Environment(
        loader=PackageLoader("lmsweep.figures.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters |= FILTERS
    return jinja.get_template(template).render(values)


def policy(style: str, script: str | None = None, images: str = "data:") -> str:
    """Allow only this page's own script, style and pictures: no network, and no script inside a text."""
    run = "'none'" if script is None else _hash(script)
    allowed = {"img-src": images, "script-src": run, "style-src": _hash(style)}
    rules = {"default-src": "'none'", **allowed, "base-uri": "'none'", "form-action": "'none'"}
    return "; ".join(f"{key} {value}" for key, value in rules.items())


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _counts(records: Collection[Record]) -> dict[str, Any]:
    verdicts = sum((record.verdicts for record in records), Counter[Verdict]())
    return {
        "figures": len({record.figure for record in records}),
        "scales": list(dict.fromkeys(record.scale for record in records)),
        "claims": len({(record.figure, claim.id) for record in records for claim in record.claims}),
        "total": verdicts.total(),
        "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS},
        "runs": len({run for record in records for run in record.runs}),
        "missing": sum(len(record.missing) for record in records),
    }
