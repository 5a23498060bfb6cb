"""The page as text: sections laid out by the template, style and script inside."""

import base64
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lmsweep.errors import UserError
from lmsweep.figures.record import Record, read_records
from lmsweep.figures.report.sections import ROWS_SHOWN, Section, anchor, section
from lmsweep.figures.statistics import Verdict
from lmsweep.figures.words import NOTHING, count, text
from lmsweep.files import write_atomically

FILTERS = {
    "text": text,
    "count": count,
    "anchor": anchor,
    "percent": "{:.2%}".format,
    "milliseconds": lambda seconds: f"{1000 * seconds:.3g} ms",
    "times": lambda ratio: NOTHING if ratio is None else f"{ratio:.2f} ×",  # noqa: RUF001 - times
    "url": lambda name: quote(name, safe=""),
}
# What a verdict means, and a sign beside the word for those who do not see the colour.
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("✓", "our numbers agree, and the 95% intervals over seeds leave no doubt"),
    "fails": ("✗", "our numbers disagree, and the intervals leave no doubt"),
    "not resolved": ("≈", "the intervals allow both, or there are fewer than 2 seeds"),
    "not run": ("○", "something that the claim needs was not run, or cannot be seen in the figure"),
}


def write_report(outputs: Path) -> Path:
    """Write <outputs>/report/index.html from all figures drawn so far, and return its path."""
    outputs = Path(outputs)
    damaged: list[str] = []
    records = read_records(outputs / "figures", damaged)
    if not records:
        raise UserError(
            f"There are no figures in {outputs / 'figures'} to report; draw one with `make reproduce-figure`."
            + " ".join(["", *damaged])
        )
    for sentence in damaged:
        print(sentence, file=sys.stderr, flush=True)
    path = outputs / "report" / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    # "replace": half of a surrogate pair is legal in JSON and cannot be written as UTF-8.
    write_atomically(path, render(records).encode(errors="replace"))
    return path


def render(records: Mapping[Path, Record]) -> str:
    """The whole page; the same records give the same bytes."""
    sections = [section(path, record) for path, record in records.items()]
    script, style = _resource("page.js"), _resource("page.css")
    return (
        _environment()
        .get_template("page.html")
        .render(
            script=Markup(script),  # noqa: S704 - a file of this package
            style=Markup(style),  # noqa: S704 - a file of this package
            policy=_policy(script, style),
            figures=_figures(sections),
            sections=sections,
            counts=_counts(sections),
            verdicts=VERDICTS,
            rows_shown=ROWS_SHOWN,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lmsweep.figures.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS
    return environment


def _resource(name: str) -> str:
    return files("lmsweep.figures.report").joinpath("templates", name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Forbid everything but this page's own parts: no network, and no script that came in with a text."""
    allowed = {"img-src": "data:", "script-src": _hash(script), "style-src": _hash(style)}
    rules = {"default-src": "'none'", **allowed, "base-uri": "'none'", "form-action": "'none'"}
    return "; ".join(f"{key} {value}" for key, value in rules.items())


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _figures(sections: list[Section]) -> list[tuple[str, list[Section]]]:
    groups = groupby(sections, key=lambda one: one.record.figure)
    return [(figure, list(group)) for figure, group in groups]


def _counts(sections: list[Section]) -> dict[str, Any]:
    verdicts = Counter(claim.verdict for one in sections for claim in one.record.claims)
    return {
        "figures": len({one.record.figure for one in sections}),
        "scales": list(dict.fromkeys(one.record.scale for one in sections)),
        "claims": len({(one.record.figure, claim.id) for one in sections for claim in one.record.claims}),
        "total": verdicts.total(),
        "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS},
        "runs": len({run for one in sections for run in one.record.runs}),
        "missing": sum(len(one.record.missing) for one in sections),
    }
