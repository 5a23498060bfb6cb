"""`lmsweep reproduce FIG --scale smoke` trains what is missing, evaluates, draws, checks claims."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lmsweep.commands.common import stop_on_sigterm
from lmsweep.commands.figure import draw
from lmsweep.commands.run import reported
from lmsweep.config.evaluation import AuditConfig, EvaluationConfig
from lmsweep.config.request import Request
from lmsweep.config.sweeps import Sweep, read_sweep, sweep_names
from lmsweep.errors import UserError
from lmsweep.evaluation.attack import evaluate
from lmsweep.evaluation.audit import audit
from lmsweep.evaluation.runs import find_run
from lmsweep.figures.audits import audits_of, is_audited
from lmsweep.figures.evaluations import missing_requests
from lmsweep.figures.make import attacked, spec_of
from lmsweep.store.lease import when_free
from lmsweep.store.store import Store
from lmsweep.store.sweeps import record_sweep
from lmsweep.sweep.estimate import describe
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.progress import duration
from lmsweep.sweep.run_plan import places, run_plan
from lmsweep.sweep.tasks import call_each


class ReproductionError(UserError):
    """Some runs failed for reasons that another call may not meet."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="lmsweep reproduce", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="FIG", help="figures, and key=value to change their runs")
    parser.add_argument("--all", action="store_true", help="every figure")
    parser.add_argument("--scale", default="smoke", help="smoke, laptop or paper (default smoke)")
    parser.add_argument("--jobs", type=int, default=None, help="runs at once (default: one per core or GPU)")
    options = parser.parse_intermixed_args(arguments)
    overrides = [word for word in options.words if "=" in word]
    names = sweep_names() if options.all else [word for word in options.words if "=" not in word]
    if not names:
        parser.error("name a figure, or --all")
    stop_on_sigterm()
    reported(lambda: reproduce(names, options.scale, jobs=options.jobs, overrides=overrides))


def reproduce(
    names: Sequence[str], scale: str, *, jobs: int | None = None, overrides: Sequence[str] = ()
) -> None:
    """Train the runs of all figures together, then evaluate and draw one figure after the other."""
    reproduce_sweeps([read_sweep(name, scale, overrides) for name in names], jobs=jobs)


def reproduce_sweeps(sweeps: Sequence[Sweep], *, jobs: int | None = None, tell: bool = True) -> None:
    """The same for sweeps that are read already; `tell` prints the claims of each figure and its path."""
    began = time.monotonic()
    for sweep in sweeps:
        spec_of(sweep)  # what is wrong with a figure shows before any training
    plan = Plan.of([config for sweep in sweeps for config in sweep.runs.values()])
    request = sweeps[0].request
    free = places(plan, jobs=jobs) if plan.counts(request)["missing"] else []
    print(describe(plan, request, free or [{}]), flush=True)
    if len(sweeps) > 1:
        asked = sum(len(sweep.runs) for sweep in sweeps)
        print(f"{len(sweeps)} figures ask for {asked} runs; sharing saves {asked - len(plan.runs)} of them.")
    if request.dry_run:
        return
    for sweep in sweeps:
        record_sweep(sweep.outputs, sweep.runs, sweep.name, sweep.label)
    outcome = run_plan(plan, request, free)
    failures: dict[str, str] = {}
    for sweep in sweeps:
        failures |= _evaluate(sweep, jobs)
        draw(sweep, tell=tell)
    print(f"Done in {duration(time.monotonic() - began)}.", flush=True)
    for what, why in failures.items():
        print(f"{what} failed: {why}", file=sys.stderr, flush=True)
    # A diverged run is a result, and the figure shows it as missing; anything else deserves another look.
    broken = [name for name in outcome.failures if not plan.store.run(name).read_status().get("final")]
    if broken or failures:
        raise ReproductionError(
            f"{len(broken)} of {len(plan.runs)} runs and {len(failures)} evaluations failed; see above."
        )


def _evaluate(sweep: Sweep, jobs: int | None) -> dict[str, str]:
    """Attack and audit the selected runs where the store does not know the answers; what failed, and why."""
    spec = spec_of(sweep)
    chosen, requests = attacked(sweep, spec)
    waiting = missing_requests(requests, sweep.runs)
    audits = [(run, config) for _, run, config in audits_of(sweep, spec, chosen)]
    audits = [(run, config) for run, config in audits if not is_audited(sweep, run, config)]
    tasks: dict[str, Callable[[], Any]] = {
        f"{sweep.name}: {request.attack} on {request.targets[0]}": partial(_attack, request.config)
        for request in waiting
    }
    tasks |= {f"{sweep.name}: audit of {run}": partial(_audit, config) for run, config in audits}
    needed = {run for request in waiting for run in (*request.targets, request.source)}
    needed |= {name for run, config in audits for name in (run, config.source)}
    if spec.kind == "regions":
        needed |= set(sweep.runs)
    _train_again(sweep, needed, jobs)
    if not tasks:
        return {}
    began = time.monotonic()
    _, failures = call_each(
        places(Plan.of(list(sweep.runs.values())), jobs=jobs), tasks, log=Path(os.devnull)
    )
    print(f"{sweep.name}: {len(tasks)} evaluations in {duration(time.monotonic() - began)}", flush=True)
    return failures


def _train_again(sweep: Sweep, needed: Collection[str | None], jobs: int | None) -> None:
    """Finished runs whose weights are needed and were deleted (by `lmsweep store gc`, say)."""
    store = Store(sweep.outputs)
    lost = [
        config
        for name, config in sweep.runs.items()
        if name in needed
        and store.run(name).read_status().get("state") == "done"
        and not store.run(name).checkpoint.exists()
    ]
    if lost:
        print(f"The weights of {len(lost)} runs were deleted; they are trained again.", flush=True)
        plan = Plan.of(lost)
        run_plan(plan, Request(force=True), places(plan, jobs=jobs))


def _attack(config: EvaluationConfig) -> None:
    when_free(lambda: evaluate(config))


def _audit(config: AuditConfig) -> None:
    when_free(lambda: audit(config, find_run(config.outputs, config.runs[0])))
