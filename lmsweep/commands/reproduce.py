"""`lmsweep reproduce FIG --scale smoke` trains what is missing, evaluates, draws and checks the claims."""

import time
from collections.abc import Collection, Mapping, Sequence

from lmsweep.commands.common import parser_of, reported
from lmsweep.commands.figures import draw
from lmsweep.commands.jobs import measurement_job, training_job
from lmsweep.commands.stages import ReproductionError, announce, on_their_way, train
from lmsweep.config.run import Request, RunConfig
from lmsweep.config.sweeps import Sweep, read_sweep, sweep_names
from lmsweep.evaluation.runs import StoredRun
from lmsweep.figures.make import measurements, spec_of
from lmsweep.figures.stages import pilot_runs
from lmsweep.processes import stop_on_sigterm
from lmsweep.store.housekeeping import drop_weights
from lmsweep.store.store import Store
from lmsweep.sweep.launcher import LocalLauncher
from lmsweep.sweep.plan import Outcome, Plan
from lmsweep.sweep.progress import duration
from lmsweep.sweep.sweeper import make_launcher


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
    reported(lambda: reproduce([read_sweep(name, options.scale, overrides) for name in names], began=began))


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
    evaluated = _evaluate(sweeps, trained.runs, launcher)
    if evaluated is None:
        return
    for sweep in sweeps:
        draw(sweep, tell=tell)
    for sweep in sweeps:
        _drop_weights(sweep)
    print(f"Done in {duration(time.monotonic() - began)}.", flush=True)
    if trained.broken or evaluated.failures:
        raise ReproductionError(
            f"{len(trained.broken)} of {len(trained.runs)} runs and {len(evaluated.failures)} evaluations "
            "failed; see above."
        )


def _evaluate(
    sweeps: Sequence[Sweep], runs: Mapping[str, RunConfig], launcher: LocalLauncher
) -> Outcome | None:
    """Measure what the store lacks of the figures' measurements; None while jobs are on their way."""
    wanted = {one.measurement.id: one.measurement for sweep in sweeps for one in measurements(sweep)}
    missing = {name: one for name, one in wanted.items() if not _is_done(sweeps[0], name)}
    if not missing:
        return Outcome()
    if not _train_again(runs, {run for one in missing.values() for run in one.runs}, launcher):
        return None
    store = Store(sweeps[0].outputs)
    stored = {name: StoredRun(store.folder(name), config) for name, config in runs.items()}
    plan = Plan.of([measurement_job(measurement, stored) for measurement in missing.values()])
    outcome = launcher.submit(plan, Request())
    return None if on_their_way(plan, outcome) else outcome


def _drop_weights(sweep: Sweep) -> None:
    """Delete the checkpoints that `grid.keep` gives up."""
    if sweep.grid.keep == "all":
        return
    mine = {**sweep.runs, **pilot_runs(sweep, spec_of(sweep))}
    record = sweep.drawn.with_name(f"{sweep.drawn.name}.json")
    files, size = drop_weights(sweep.outputs, mine, record if sweep.grid.keep == "none" else None)
    print(f"grid.keep={sweep.grid.keep}: {files} checkpoints deleted, {size / 1e6:.1f} MB.", flush=True)


def _is_done(sweep: Sweep, name: str) -> bool:
    return Store(sweep.outputs, "evaluations").folder(name).read_status().get("state") == "done"


def _train_again(runs: Mapping[str, RunConfig], needed: Collection[str], launcher: LocalLauncher) -> bool:
    """Train finished runs whose weights are needed and were deleted (by `lmsweep store gc`, say).

    False while those are on their way.
    """
    jobs = [training_job(runs[name]) for name in runs if name in needed]
    lost = [
        job
        for job in jobs
        if job.folder.read_status().get("state") == "done" and not job.folder.checkpoint.exists()
    ]
    if not lost:
        return True
    print(f"The weights of {len(lost)} runs were deleted; they are trained again.", flush=True)
    plan = Plan.of(lost)
    return not on_their_way(plan, launcher.submit(plan, Request(force=True)))
