"""Drawn figures as Markdown: a page with pictures and claims, and a short overview."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from lmsweep.figures.markdown import table
from lmsweep.figures.report.format import text
from lmsweep.figures.report.records import Record, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def results_page(records: Sequence[Record], scale: str) -> str:
    """The page that stands beside the pictures of a scale."""
    lines = [
        f"# Results at {scale} scale",
        "",
        f"Made by `make publish SCALE={scale}` from the figures' own records; change nothing here by hand.",
        "",
        *_summary(records),
    ]
    for record in records:
        lines += ["", *_section(record)]
    return "\n".join(lines) + "\n"


def overview(records: Sequence[Record], folder: str) -> str:
    """A row per figure, for a page elsewhere: links to the picture and to the claims below `folder`."""
    rows = []
    for record in records:
        counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts(record).items())
        picture = f"[`{record.figure}`]({folder}/{record.figure}.png)"
        paper = re.sub(r"^Figures? ", "", record.paper or "")
        rows.append(
            [
                picture,
                record.title,
                paper,
                f"[{counts or 'no claims'}]({folder}/README.md#{record.figure.lower()})",
            ]
        )
    return table(["figure", "shows", "in the paper", "its claims, here"], rows)


def with_overview(page: str, scale: str, folder: str, records: Sequence[Record]) -> str:
    """The page with the overview of a scale between its two markers; one without markers stays as it is."""
    begin, end = f"<!-- figures at {scale} scale: written by make publish -->", "<!-- end of figures -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        return page
    return f"{before}{begin}\n{overview(records, folder)}\n{end}{after}"


def verdicts(record: Record) -> dict[Verdict, int]:
    """How many claims of a figure have each verdict, the usual order, without those that none has."""
    counts = Counter(claim.verdict for claim in record.claims)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def _summary(records: Sequence[Record]) -> list[str]:
    rows = []
    for record in records:
        counts = verdicts(record)
        link = f"[{record.figure}](#{record.figure.lower()})"
        commit = str(record.provenance.get("commit"))[:7]
        seeds = len(record.seeds)
        rows.append([link, *(counts.get(verdict, 0) for verdict in VERDICTS), record.trained, seeds, commit])
    return _table(["figure", *VERDICTS, "runs", "seeds", "commit"], rows)


def _section(record: Record) -> list[str]:
    lines = [f"## {record.figure}", "", f"{record.title} ({record.paper}). {record.question}", ""]
    lines += [f"![{record.title}]({record.figure}.png)", ""]
    claims = [[c.verdict, c.says, c.where, c.paper, c.ours, c.n] for c in record.claims]
    lines += _table(["verdict", "the paper says", "where", "paper", "ours", "n"], claims)
    if record.audit:
        audits = [[row.method, row.verdict, "; ".join(row.reasons)] for row in record.audit]
        lines += ["", *_table(["audit of", "verdict", "because"], audits)]
    if record.missing:
        lines += [
            "",
            f"{len(record.missing)} cells are missing; the [record]({record.figure}.json) lists them.",
        ]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    if not rows:
        return ["(none)"]
    return [table(head, [[text(cell) for cell in row] for row in rows])]
