"""Say on the terminal what a figure says about the paper."""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {"holds": "green", "fails": "red", "not resolved": "yellow", "not run": "dim"}


def print_claims(record: Mapping[str, Any]) -> None:
    """The claims with their verdicts, and what is missing."""
    title = f"{record['figure']}, {record['scale']} scale: {record['title']} ({record['paper']})"
    table = Table("verdict", "the paper says", "paper", "ours", "n", title=title, title_justify="left")
    for claim in record["claims"]:
        verdict = Text(claim["verdict"], style=STYLES[claim["verdict"]])
        table.add_row(
            verdict, *(Text(str(claim[key])) for key in ("says", "paper", "ours")), str(claim["n"] or "-")
        )
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 140
    console.print(table)
    if record["missing"]:
        cells = ", ".join(f"{c['method']} at {c['x']:g} ({c['reason']})" for c in record["missing"][:5])
        more = f" and {len(record['missing']) - 5} more" if len(record["missing"]) > 5 else ""
        console.print(Text(f"Missing: {cells}{more}."), soft_wrap=True)
