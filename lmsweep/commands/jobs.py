"""Runs and measurements as jobs: where they meet the store, the work and its mirrors."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.commands.mirror import mirror_stored, unmirrored
from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.identity import run_id
from lmsweep.config.measurement import Measurement
from lmsweep.config.request import Request
from lmsweep.config.run import RunConfig
from lmsweep.evaluation.jobs import evaluation_job
from lmsweep.evaluation.runs import StoredRun
from lmsweep.processes import call_each
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Needs, Results, Work
from lmsweep.store.run_job import JobFailedError, reason, run_job
from lmsweep.store.store import Store
from lmsweep.sweep.plan import state_for
from lmsweep.tracking.jobs import mirror_attack
from lmsweep.tracking.run import tracked
from lmsweep.training.ranks import LocalRanks
from lmsweep.training.task_ranks import first_task, follow, task_of

if TYPE_CHECKING:
    from lmsweep.training.run import Parts

PRELOAD = "lmsweep.training.preload"
# Keys that change the results of a run but hardly its duration.
FREE = ("seed", "data.fraction", "data.label_noise", "data.noisy_validation", "model.dropout")
FREE_OF_MARGIN = ("norm", "gamma", "weight", "epsilon", "clip")


def training_job(config: RunConfig, parts: "Parts | None" = None) -> Job:
    """The job of a run; `parts` are what `prepare_run` built, when it was called already."""
    trainer, identity = config.trainer, config.identity_dict()
    tracks = ("lmsweep.tracking.preload",) if config.tracking.name == "wandb" else ()
    return Job(
        kind="run",
        id=run_id(identity),
        outputs=config.outputs,
        config=config.to_dict(),
        about=config.about(),
        begin=partial(_training, config, parts),
        summary=accuracies,
        needs=Needs(trainer.accelerator, trainer.threads, trainer.devices, trainer.num_nodes),
        cell=run_id({key: value for key, value in identity.items() if key != "seed"}),
        cost=cost_key(config),
        probe=partial(_probe, config),
        preload=(PRELOAD, *tracks),  # importing W&B takes a second
        help=partial(_help, config),
    )


def measurement_job(measurement: Measurement, runs: Mapping[str, StoredRun]) -> Job:
    """The job of a measurement on stored runs; attacks are mirrored where their configuration says so."""
    config, mirror = measurement.config, None
    if isinstance(config, EvaluationConfig):
        targets = {name: runs[name].config for name in measurement.targets}
        mirror = partial(mirror_attack, config.tracking, config.outputs, targets)
    return evaluation_job(measurement, runs, mirror)


def run_training(config: RunConfig, request: Request | None = None) -> tuple[JobFolder, Results]:
    """Return the folder and the results of a run, training it in this process only when they are missing."""
    job = training_job(config)
    folder, request = job.folder, request or Request()
    status = folder.read_status()
    state = state_for(status, request)
    if state == "done":
        if config.trainer.processes == 1 or os.environ.get("SLURM_PROCID", "0") == "0":  # task 0 writes
            mirror_stored({job.id: config})
        return folder, folder.read_results() or {}
    if state == "failed":
        raise JobFailedError(
            f"Run {job.id} failed before: {status['reason']} (details in {folder.error}); "
            "force=true trains it again."
        )
    task_of(config, job.id)  # raises when Slurm's tasks are not those that the run needs
    from lmsweep.training.run import prepare_run  # imports torch, which a finished run does not need

    parts = prepare_run(config)  # before the lease: what does not fit together leaves nothing in the store
    return folder, run_job(training_job(config, parts), force=request.force)


def mirror_late(runs: Mapping[str, RunConfig]) -> None:
    """Mirror finished runs that were trained before anybody asked for that; one process is enough."""
    late = {name: runs[name] for name in unmirrored(runs)}
    if not late:
        return
    tasks = {"mirror": partial(mirror_stored, late)}
    ended = call_each([{}], tasks, log=Path(os.devnull), preload=(PRELOAD,))["mirror"]
    told = f"{len(late)} runs of the store were mirrored"
    if ended.error or ended.died:
        told = reason(ended.error) if ended.error else f"the process that mirrors runs died by {ended.died}"
    print(f"Tracking: {told}.", file=sys.stderr, flush=True)


def accuracies(results: Results) -> str:
    """The results of a run in a few words."""
    metrics = results["metrics"]
    return f"validation {metrics['val_accuracy']:.2%}  test {metrics['test_accuracy']:.2%}"


def cost_key(config: RunConfig) -> str:
    """Runs with the same key take about as long as each other."""
    identity = config.identity_dict()
    for key in (*FREE, *(f"margin.{name}" for name in FREE_OF_MARGIN)):
        *parents, last = key.split(".")
        node: dict[str, Any] = identity
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)
    identity["optimizer"] = config.optimizer.target
    if config.trainer.processes > 1:  # part of no identity, and yet it takes another time
        identity["processes"] = config.trainer.processes
    return run_id(identity)


@contextmanager
def _training(config: RunConfig, parts: "Parts | None") -> Iterator[Work]:
    """The work of a run, with its mirror and with the other processes that train it."""
    task = task_of(config, config.id)
    # The mirror ends last, so that no upload keeps results from being recorded.
    with tracked(config, config.id) as tracker, first_task(config, task) as first:

        def work(folder: JobFolder) -> Results:
            from lmsweep.training.run import prepare_run, run

            company = LocalRanks(config, folder) if config.trainer.processes > 1 else None
            tracker.open()
            ready = parts or prepare_run(config)
            results = run(ready, config.id, folder.path, folder.holding, first or company, tracker)
            return {**results, "cost_key": cost_key(config)}

        yield work
        if first:
            first.end(Store(config.outputs).folder(config.id).read_results() or {})


def _help(config: RunConfig) -> Results | None:
    """As one of several tasks of a Slurm step, all but task 0 help task 0 and return its results."""
    task = task_of(config, config.id)
    if task is None or task.rank == 0:
        return None
    from lmsweep.training.run import prepare_run

    folder = Store(config.outputs).folder(config.id).path
    return follow(config, task, folder, partial(prepare_run, config))


def _probe(config: RunConfig) -> float:
    from lmsweep.training.probe import probe_seconds  # imports torch, which only the worker needs

    return probe_seconds(config)
