"""Run a plan on this machine and tell how it went."""

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lmsweep.config.request import Request
from lmsweep.sweep.devices import Slot, cores_for, slots, visible_gpus
from lmsweep.sweep.local import LocalSweep, Outcome
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.pool import PRELOAD, Pool, call_all
from lmsweep.sweep.progress import Progress, duration, label, print_failures
from lmsweep.sweep.tasks import call_each
from lmsweep.tracking.mirror import mirror_stored, unmirrored


def places(plan: Plan, *, jobs: int | None = None, runs_per_gpu: int = 1) -> list[Slot]:
    """What the processes that train the runs of a plan may use, one slot for each of them."""
    trainers = [config.trainer for config in plan.runs.values()]
    gpus: list[str] = []
    if not all(trainer.accelerator == "cpu" for trainer in trainers):
        # In a worker, to keep torch out of this process; it starts the server of all later ones.
        gpus = call_all([{}], {"gpus": visible_gpus}, preload=preload_for(plan))["gpus"]
    cores = cores_for(max(trainer.threads * trainer.devices for trainer in trainers))
    devices = max(trainer.devices for trainer in trainers)
    return slots(jobs=jobs, runs_per_gpu=runs_per_gpu, gpus=gpus, cores=cores, gpus_per_run=devices)


def preload_for(plan: Plan) -> tuple[str, ...]:
    """What the workers' server imports: W&B as well when runs are mirrored to it, for that takes a second."""
    tracked = any(config.tracking.name == "wandb" for config in plan.runs.values())
    return (*PRELOAD, "lmsweep.tracking.preload") if tracked else PRELOAD


def run_plan(plan: Plan, request: Request, slots: Sequence[Slot]) -> Outcome:
    """Train what is missing, show progress, and print a line about it and a table of what failed."""
    began = time.monotonic()
    pool = Pool(slots, preload_for(plan))
    with Progress(plan.about(), len(slots)) as progress:
        outcome = LocalSweep(plan, request, pool, progress).run()
    report(plan, outcome, progress, began)
    _mirror(plan)
    return outcome


def _mirror(plan: Plan) -> None:
    """Mirror finished runs that were trained before anybody asked for that; one process is enough."""
    late = {name: plan.runs[name] for name in unmirrored(plan.runs)}
    if not late:
        return
    tasks = {"mirror": partial(mirror_stored, late)}
    _, failures = call_each([{}], tasks, Path(os.devnull))
    told = failures.get("mirror", f"{len(late)} runs of the store were mirrored")
    print(f"Tracking: {told}.", file=sys.stderr, flush=True)


def report(plan: Plan, outcome: Outcome, progress: Progress, began: float) -> None:
    """Print a line about what happened since `began`, and a table of what failed."""
    numbers = {**progress.counts, "on their way": progress.left}
    counts = ", ".join(f"{n} {what}" for what, n in numbers.items() if n)
    repeats = len(plan.jobs) - len(plan.runs)
    jobs = f" ({len(plan.jobs)} jobs, {repeats} of them repeats)" if repeats else ""
    spent = duration(time.monotonic() - began)
    print(f"{len(plan.runs)} runs{jobs}: {counts}, in {spent}; {plan.store.root}", flush=True)
    if outcome.failures:
        about = plan.about()
        print_failures(
            [(n, label(about[n]), why, plan.store.run(n).error) for n, why in outcome.failures.items()]
        )
