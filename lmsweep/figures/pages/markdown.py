"""Drawn figures as Markdown: a page with pictures and claims, and a short overview."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from lmsweep.figures.record import HEAD, Record, claim_rows
from lmsweep.figures.statistics import RULE, Verdict
from lmsweep.figures.words import NOTHING, text

OLD_RULE = (
    "**Drawn by the old rule**, from the shorter trainings of that time: intervals and verdicts are those of "
    "a bootstrap over seeds, which is too sure of itself with so few. To be drawn anew."
)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; values may hold any text, also bars and line breaks."""

    def line(values: Sequence[Any]) -> str:
        texts = [value if isinstance(value, str) else text(value) for value in values]
        return "| " + " | ".join(" ".join(value.split()).replace("|", "\\|") for value in texts) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def results_page(records: Sequence[Record], scale: str) -> str:
    """The page that stands beside the pictures of a scale."""
    made = f"Made by `make publish SCALE={scale}` from the figures' own records; change nothing here by hand."
    parts = [f"# Results at {scale} scale", made, _summary(records)]
    return "\n\n".join([*parts, *(part for record in records for part in _section(record))]) + "\n"


def with_overview(page: str, folder: str, records: Sequence[Record]) -> str:
    """The page with the overview of all figures between its markers; without markers, the page as it is."""
    begin, end = "<!-- figures: written by make publish -->", "<!-- end of figures -->"
    return between(page, begin, end, _overview(records, folder))


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with `text` between two markers; without markers, the page as it is."""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}" if found and closed else page


def _overview(records: Sequence[Record], folder: str) -> str:
    """A row per figure at its largest scale, with links to the picture and to the claims below `folder`."""
    shown = {record.figure: record for record in records}.values()  # the largest scale of a figure comes last
    counts = sum((record.verdicts for record in shown), Counter[Verdict]())
    rows = []
    for record in shown:
        place = f"{folder}/{record.scale}"
        picture = f"[`{record.figure}`]({place}/{record.figure}.png)"
        claims = f"[{_said(record.verdicts) or 'no claims'}]({place}/README.md#{record.figure.lower()})"
        title = re.sub(r"^Figures? ", "", record.paper)
        rows.append([picture, record.title, title, record.scale, claims])
    head = ["figure", "shows", "in the paper", "scale", "its claims, here"]
    return f"Of {counts.total()} claims: {_said(counts)}.\n\n{table(head, rows)}"


def _said(counts: Counter[Verdict]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def _summary(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        link = f"[{record.figure}](#{record.figure.lower()})"
        counts = [record.verdicts[verdict] for verdict in VERDICTS]
        commit = str(record.provenance.get("commit"))[:7]
        rows.append([link, *counts, record.trained, len(record.seeds), commit])
    return table(["figure", *VERDICTS, "runs", "seeds", "commit"], rows)


def _section(record: Record) -> list[str]:
    """Its paragraphs."""
    parts = [f"## {record.figure}", f"{record.title} ({record.paper}). {record.question}"]
    parts.append(f"![{record.title}]({record.figure}.png)")
    if record.intervals != RULE:
        parts.append(OLD_RULE)
    parts.append(table(HEAD, claim_rows(record.claims)) if record.claims else "(none)")
    if record.audit:
        audits = [[row.method, row.verdict, "; ".join(row.reasons) or NOTHING] for row in record.audit]
        parts.append(table(["audit of", "verdict", "because"], audits))
    parts += [f"{remark}." for remark in record.training.get("remarks", ())]
    if record.missing:
        gone = len(record.missing)
        parts.append(f"{gone} cells are missing; the [record]({record.figure}.json) lists them.")
    return parts
