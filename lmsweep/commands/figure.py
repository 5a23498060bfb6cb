"""`lmsweep figure FIG --scale smoke` draws a figure from what the store has; it trains nothing.

With `--explain METHOD X` it prints instead how the number of a method at x came about.
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmsweep.commands.run import reported
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.errors import UserError
from lmsweep.evaluation.audit import judged
from lmsweep.figures.claims.verdicts import HEAD, claim_rows
from lmsweep.figures.explain import explain
from lmsweep.figures.make import make_figure
from lmsweep.figures.record import Record
from lmsweep.tracking.jobs import mirror_figure

STYLES = {"holds": "green", "fails": "red", "not resolved": "yellow", "not run": "dim"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="lmsweep figure", description=__doc__)
    parser.add_argument("words", nargs="+", metavar="FIG", help="figures, and key=value to change their runs")
    parser.add_argument("--scale", default="smoke", help="smoke, laptop or paper (default smoke)")
    parser.add_argument("--explain", nargs=2, metavar=("METHOD", "X"), help="say how one number came about")
    options = parser.parse_intermixed_args(arguments)
    if options.explain:
        reported(lambda: _explain(options.words, options.scale, *options.explain))
    else:
        reported(lambda: _draw_all(options.words, options.scale))


def _draw_all(words: Sequence[str], scale: str) -> None:
    overrides = [word for word in words if "=" in word]
    for name in (word for word in words if "=" not in word):
        draw(read_sweep(name, scale, overrides))


def _explain(words: Sequence[str], scale: str, method: str, x: str) -> None:
    overrides = [word for word in words if "=" in word]
    try:
        place = float(x)
    except ValueError:
        raise UserError(f"--explain {method} {x} is not allowed: x must be a number.") from None
    for name in (word for word in words if "=" not in word):
        print(*explain(read_sweep(name, scale, overrides), method, place), sep="\n")


def draw(sweep: Sweep, *, tell: bool = True) -> None:
    """Make a figure from the store and mirror it; with `tell`, print its claims and where it is."""
    made = make_figure(sweep, judged)
    mirror_figure(sweep.tracking, sweep.outputs, made.record, made.picture)
    if tell:
        print_claims(made.record)
        print(made.picture, flush=True)


def print_claims(record: Record) -> None:
    """The claims with their verdicts, and which cells are missing; the pages also say where in the paper."""
    title = f"{record.figure}, {record.scale} scale: {record.title} ({record.paper})"
    shown = [column for column in HEAD._fields if column != "where"]
    table = Table(*(getattr(HEAD, column) for column in shown), title=title, title_justify="left")
    for row in claim_rows(record.claims):
        cells = {column: Text(getattr(row, column)) for column in shown}
        cells["verdict"].stylize(STYLES[row.verdict])
        table.add_row(*cells.values())
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 140
    console.print(table)
    if record.missing:
        gone = ", ".join(f"{c.method} at {c.x:g} ({c.reason})" for c in record.missing[:5])
        more = f" and {len(record.missing) - 5} more" if len(record.missing) > 5 else ""
        console.print(Text(f"Missing: {gone}{more}."), soft_wrap=True)
