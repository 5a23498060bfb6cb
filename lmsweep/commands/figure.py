"""`lmsweep figure FIG --scale smoke` draws a figure from what the store has; it trains nothing."""

import argparse
from collections.abc import Sequence

from lmsweep.commands.run import reported
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.evaluation.audit import judged
from lmsweep.figures.make import make_figure
from lmsweep.figures.summary import print_claims
from lmsweep.tracking.jobs import mirror_figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="lmsweep figure", description=__doc__)
    parser.add_argument("words", nargs="+", metavar="FIG", help="figures, and key=value to change their runs")
    parser.add_argument("--scale", default="smoke", help="smoke, laptop or paper (default smoke)")
    options = parser.parse_intermixed_args(arguments)
    reported(lambda: _draw(options.words, options.scale))


def _draw(words: Sequence[str], scale: str) -> None:
    overrides = [word for word in words if "=" in word]
    for name in (word for word in words if "=" not in word):
        draw(read_sweep(name, scale, overrides))


def draw(sweep: Sweep, *, tell: bool = True) -> None:
    """Make a figure from the store and mirror it; with `tell`, print its claims and where it is."""
    made = make_figure(sweep, judged)
    mirror_figure(sweep.tracking, sweep.outputs, made.record, made.picture)
    if tell:
        print_claims(made.record)
        print(made.picture, flush=True)
