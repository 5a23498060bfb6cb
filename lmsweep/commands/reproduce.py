"""`lmsweep reproduce FIG --scale smoke` trains what is missing, evaluates, draws and checks the claims.

Runs are trained in one stage or two: pilot runs choose the settings of the runs that report. `lmsweep costs`
says in advance what that takes at a scale: runs, steps, hours; docs/cluster.md has its table.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lmsweep.commands import parser_of, reported
from lmsweep.commands.figures import draw
from lmsweep.commands.jobs import measurement_job, mirror_late, rung_job, total_steps, training_job
from lmsweep.config.run import Request, RunConfig, parse
from lmsweep.config.sweeps import Sweep, read_sweep, sweep_names
from lmsweep.errors import UserError
from lmsweep.evaluation.runs import StoredRun
from lmsweep.figures.make import measurements, spec_of
from lmsweep.figures.pages.markdown import between, table
from lmsweep.figures.select import RUNGS, Rung, Stages
from lmsweep.files import write_atomically
from lmsweep.processes import stop_on_sigterm
from lmsweep.provenance import machine_name
from lmsweep.store.housekeeping import drop_weights
from lmsweep.store.job import Job
from lmsweep.store.sweeps import PILOT, record_sweep
from lmsweep.sweep.estimate import Seconds, cost, estimate
from lmsweep.sweep.local import LocalLauncher
from lmsweep.sweep.plan import Outcome, Plan, places
from lmsweep.sweep.progress import duration
from lmsweep.sweep.sweeper import make_launcher

# Where a Markdown page has the table of costs.
BEGIN, END = "<!-- costs: written by `lmsweep costs --write` -->", "<!-- end of costs -->"
Runs = dict[str, RunConfig]


class ReproductionError(UserError):
    """Some jobs failed for reasons that another call may not meet."""


@reported()
def reproduce_command(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing of figures, evaluate, draw, and check the paper's claims."""
    parser = parser_of(reproduce_command, scale="smoke")
    parser.add_argument("words", nargs="*", metavar="FIG", help="figures, and key=value to change their runs")
    parser.add_argument("--all", action="store_true", help="every figure")
    parser.add_argument("--jobs", type=int, default=None, help="jobs at once (default: one per core or GPU)")
    options = parser.parse_intermixed_args(arguments)
    overrides = [word for word in options.words if "=" in word]
    overrides += [f"hydra.launcher.jobs={options.jobs}"] if options.jobs is not None else []
    names = sweep_names() if options.all else [word for word in options.words if "=" not in word]
    if not names:
        parser.error("name a figure, or --all")
    stop_on_sigterm()
    began = time.monotonic()
    reproduce([read_sweep(name, options.scale, overrides) for name in names], began=began)


def reproduce(sweeps: Sequence[Sweep], *, tell: bool = True, began: float | None = None) -> None:
    """Train the runs of all figures, then evaluate those that figures select, then draw the figures.

    Where a scale asks for two stages, pilot runs first choose the settings of the runs that report. Each
    stage is one plan, submitted to the launcher that the configuration names. Where a launcher does not wait,
    the same command goes on with the next stage. `tell` prints the claims of each figure and its path.
    `began` is when the sweeps began to be read.
    """
    began = time.monotonic() if began is None else began
    launcher, request = make_launcher(sweeps[0].launcher), sweeps[0].request
    announce(sweeps, launcher, request)
    trained = None if request.dry_run else train(sweeps, launcher, request)
    if trained is None:
        return
    failed = _evaluate(sweeps, trained.plan, launcher)
    if failed is None:
        return
    for sweep in sweeps:
        draw(sweep, tell=tell)
    for sweep in sweeps:
        _drop_weights(sweep)
    print(f"Done in {duration(time.monotonic() - began)}.", flush=True)
    if trained.broken or failed:
        raise ReproductionError(
            f"{len(trained.broken)} of {len(trained.plan.jobs)} runs and {failed} evaluations "
            "failed; see above."
        )


def announce(sweeps: Sequence[Sweep], launcher: LocalLauncher, request: Request) -> None:
    """Print what is to be trained for all figures, in which stages, and what sharing and stages spare."""
    stages = [Stages(sweep, spec_of(sweep)) for sweep in sweeps]
    pilots = [one.finalists(guess=True) for one in stages]
    reports = [one.reporting_runs(guess=True) for one in stages]
    first, runs = _together(pilots), _together([*pilots, *reports])
    figures = {
        sweep.name: {**pilots_of, **report}
        for sweep, pilots_of, report in zip(sweeps, pilots, reports, strict=True)
    }
    print(launcher.describe(Plan.of(_jobs(runs)), request, figures), flush=True)
    if len(sweeps) > 1:
        asked = sum(map(len, reports))
        saved = asked - len(_together(reports))
        print(f"{len(sweeps)} figures ask for {asked} runs; sharing saves {saved} of them.", flush=True)
    everyone = _together(one.pilot_runs for one in stages)
    if everyone:
        grid = _together(sweep.runs for sweep in sweeps)
        climbing = [_rungs(stages, number, guess=True) for number in range(RUNGS)]
        paused = {rung.run.id: rung.step for rivals in climbing for rung in rivals.values()}
        steps = total_steps(runs) + sum(step for run, step in paused.items() if run not in first)
        if any(climbing):
            pausing = ", then ".join(str(len(rivals)) for rivals in climbing)
            print(f"Halving: {pausing} pilot runs pause and are compared; {len(first)} go on to their end.")
        print(
            f"Two stages: {len(everyone)} runs {_seeds(everyone)} choose the settings of "
            f"{len(runs) - len(first)} that report. {len(runs) - len(first) + len(everyone)} runs in place "
            f"of {len(grid)} spare {1 - steps / total_steps(grid):.0%} of the steps.",
            flush=True,
        )


def train(sweeps: Sequence[Sweep], launcher: LocalLauncher, request: Request) -> Outcome | None:
    """Train the runs that figures report, after those that choose their settings.

    None while any of them is on its way.
    """
    stages = [Stages(sweep, spec_of(sweep)) for sweep in sweeps]
    pilots = [one.pilot_runs for one in stages]
    if any(pilots):
        _record(sweeps, pilots, PILOT)
        for number in range(RUNGS + 1):  # without halving all come to the end at once
            compared = _compare(stages, number, launcher, request)
            if compared is None:
                return None
            if compared.broken and request.retry != "none":
                broken = f"{len(compared.broken)} of {len(compared.plan.jobs)}"
                raise ReproductionError(
                    f"{broken} pilot runs failed, so that no settings are chosen yet; the same command "
                    "trains them again, and retry=none chooses among the others."
                )
        everyone = _together(pilots)
        print(f"The runs {_seeds(everyone)} have chosen the settings; other seeds report.", flush=True)
    reports = [one.reporting_runs() for one in stages]
    _record(sweeps, reports)
    return _train_all(_together(reports), launcher, request)


def _compare(
    stages: Sequence[Stages], number: int, launcher: LocalLauncher, request: Request
) -> Outcome | None:
    """Train the pilot runs that are still rivals up to a rung, or after the last rung to their end."""
    if number == RUNGS:
        return _train_all(_together(one.finalists() for one in stages), launcher, request)
    return _submit([rung_job(rung) for rung in _rungs(stages, number).values()], launcher, request)


def _rungs(stages: Sequence[Stages], number: int, *, guess: bool = False) -> dict[str, Rung]:
    return {rung.id: rung for one in stages for rung in one.rungs(number, guess=guess)}


def _submit(jobs: Sequence[Job], launcher: LocalLauncher, request: Request) -> Outcome | None:
    """Have jobs run; None, and a line about it, when the launcher did not wait for the end of all of them."""
    plan = Plan.of(jobs)
    outcome = launcher.submit(plan, request) if jobs else Outcome(plan)
    if not outcome.left:
        return outcome
    print(f"{outcome.left} {plan.noun} are on their way; the same command goes on with what comes next.")
    return None


def _train_all(runs: Runs, launcher: LocalLauncher, request: Request) -> Outcome | None:
    outcome = _submit(_jobs(runs), launcher, request)
    mirror_late(runs)
    return outcome


def _record(sweeps: Sequence[Sweep], asked: Sequence[Runs], suffix: str = "") -> None:
    for sweep, mine in zip(sweeps, asked, strict=True):
        if mine:
            record_sweep(sweep.outputs, mine, sweep.name, f"{sweep.label}{suffix}")


def _jobs(runs: Runs) -> list[Job]:
    return [training_job(config) for config in runs.values()]


def _together(parts: Iterable[Mapping[str, RunConfig]]) -> Runs:
    return {name: config for runs in parts for name, config in runs.items()}


def _seeds(runs: Runs) -> str:
    seeds = sorted({run.seed for run in runs.values()})
    return f"on seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _evaluate(sweeps: Sequence[Sweep], trained: Plan, launcher: LocalLauncher) -> int | None:
    """Measure what the store lacks of the figures' measurements; return how many measurements failed.

    Runs whose weights are needed and were deleted (by `lmsweep store gc`, say) are trained again before. None
    while jobs are on their way.
    """
    wanted = {one.measurement.id: one for sweep in sweeps for one in measurements(sweep)}.values()
    missing = [one.measurement for one in wanted if one.folder.read_status().get("state") != "done"]
    needed = {run: trained.jobs[run] for one in missing for run in one.runs}
    lost = [job for job in needed.values() if not job.folder.checkpoint.exists()]
    if lost:
        print(f"The weights of {len(lost)} runs were deleted; they are trained again.", flush=True)
        if _submit(lost, launcher, Request(force=True)) is None:
            return None
    runs = {name: StoredRun(job.folder, parse(job.config)) for name, job in needed.items()}
    outcome = _submit([measurement_job(one, runs) for one in missing], launcher, Request())
    return None if outcome is None else len(outcome.failures)


def _drop_weights(sweep: Sweep) -> None:
    """Delete the checkpoints that `grid.keep` gives up."""
    if sweep.grid.keep == "all":
        return
    mine = {**sweep.runs, **Stages(sweep, spec_of(sweep)).pilot_runs}
    record = sweep.drawn.with_name(f"{sweep.drawn.name}.json")
    files, size = drop_weights(sweep.outputs, mine, record if sweep.grid.keep == "none" else None)
    print(f"grid.keep={sweep.grid.keep}: {files} checkpoints deleted, {size / 1e6:.1f} MB.", flush=True)


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
    asked: dict[str, tuple[set[str], Runs]] = {}
    for sweep in sweeps:
        stages = Stages(sweep, spec_of(sweep))
        asked[sweep.name] = set(sweep.runs), {**stages.pilot_runs, **stages.reporting_runs(guess=True)}
    everything = _together(runs for _, runs in asked.values())
    asked["all together"] = {name for grid, _ in asked.values() for name in grid}, everything
    plan = Plan.of(_jobs(everything))
    seconds = estimate(plan, list(plan.jobs), places(plan)) if hours else {}
    return [
        Row(figure, len(grid), len(runs), total_steps(runs), _hours(plan, runs, seconds) if hours else "")
        for figure, (grid, runs) in asked.items()
    ]


def as_table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    head = ("figure", "grid", "runs trained", "steps", f"core hours on {machine_name()}")
    return table(head, [(*row[:1], *(f"{number:,}" for number in row[1:4]), row.hours) for row in rows])


def _hours(plan: Plan, runs: dict[str, RunConfig], seconds: dict[str, Seconds]) -> str:
    known = {name: seconds[name] for name in runs if name in seconds}
    if not known:
        return "?"
    unknown = len(runs) - len(known)
    return cost(plan.jobs, known).hours() + (f", without {unknown} runs" if unknown else "")
