"""The report: every drawn figure, its claims and where its numbers come from, on one static page."""

from pathlib import Path

from lmsweep.errors import UserError
from lmsweep.figures.report.page import render
from lmsweep.figures.report.records import read_records
from lmsweep.files import write_atomically

__all__ = ["write_report"]


def write_report(outputs: Path) -> Path:
    """Write <outputs>/report/index.html from all figures drawn so far, and return its path."""
    outputs = Path(outputs)
    records = read_records(outputs / "figures")
    if not records:
        raise UserError(
            f"There are no figures in {outputs / 'figures'} to report; draw one with `make reproduce-figure`."
        )
    path = outputs / "report" / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    # "replace": half of a surrogate pair is legal in JSON and cannot be written as UTF-8.
    write_atomically(path, render(records).encode(errors="replace"))
    return path
