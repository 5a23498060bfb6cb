"""`lmsweep costs` says what figures cost at a scale: runs, steps, hours. docs/cluster.md has its table."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lmsweep.commands.common import parser_of, reported
from lmsweep.commands.jobs import total_steps, training_job
from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import Sweep, read_sweep, sweep_names
from lmsweep.errors import UserError
from lmsweep.figures.make import spec_of
from lmsweep.figures.pages.markdown import between, table
from lmsweep.figures.stages import Stages
from lmsweep.files import write_atomically
from lmsweep.provenance import machine_name
from lmsweep.sweep.devices import places
from lmsweep.sweep.estimate import Seconds, cost, estimate
from lmsweep.sweep.plan import Plan

BEGIN, END = "<!-- costs: written by `lmsweep costs --write` -->", "<!-- end of costs -->"


class Row(NamedTuple):
    """What a figure costs."""

    figure: str
    grid: int  # runs of the whole grid
    runs: int  # those that are trained, in one stage or two
    steps: int
    hours: str = ""


@reported()
def costs_command(arguments: Sequence[str] | None = None) -> None:
    """Say what figures cost at a scale: runs, steps, and hours as a short probe measures them here."""
    parser = parser_of(costs_command, scale="paper")
    parser.add_argument("figures", nargs="*", metavar="FIG", help="which ones (default: all)")
    parser.add_argument("--no-hours", action="store_true", help="only count runs and steps")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into a Markdown page")
    options = parser.parse_args(arguments)
    sweeps = [read_sweep(name, options.scale) for name in options.figures or sweep_names()]
    page = as_table(costs(sweeps, hours=not options.no_hours))
    if options.write is None:
        print(page, flush=True)
        return
    text = options.write.read_text()
    if BEGIN not in text or END not in text:
        raise UserError(f"{options.write} has no place for the table: add the lines {BEGIN} and {END}.")
    write_atomically(options.write, between(text, BEGIN, END, page))


def costs(sweeps: Sequence[Sweep], *, hours: bool = True) -> list[Row]:
    """A row per figure, and one of all together, whose runs are shared."""
    asked = {sweep.name: (set(sweep.runs), _trained(sweep)) for sweep in sweeps}
    everything = {name: run for _, runs in asked.values() for name, run in runs.items()}
    asked["all together"] = {name for grid, _ in asked.values() for name in grid}, everything
    plan = Plan.of([training_job(run) for run in everything.values()])
    seconds = estimate(plan, list(plan.jobs), places(plan)) if hours else {}
    return [
        Row(figure, len(grid), len(runs), total_steps(runs), _hours(plan, runs, seconds) if hours else "")
        for figure, (grid, runs) in asked.items()
    ]


def as_table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    head = ("figure", "grid", "runs trained", "steps", f"core hours on {machine_name()}")
    return table(head, [(*row[:1], *(f"{number:,}" for number in row[1:4]), row.hours) for row in rows])


def _trained(sweep: Sweep) -> dict[str, RunConfig]:
    stages = Stages(sweep, spec_of(sweep))
    return {**stages.pilot_runs, **stages.reporting_runs(guess=True)}


def _hours(plan: Plan, runs: dict[str, RunConfig], seconds: dict[str, Seconds]) -> str:
    known = {name: seconds[name] for name in runs if name in seconds}
    if not known:
        return "?"
    unknown = len(runs) - len(known)
    return cost(plan.jobs, known).hours() + (f", without {unknown} runs" if unknown else "")
