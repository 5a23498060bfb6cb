"""Runs, rungs and measurements as jobs: where they meet the store, the work and its mirrors."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.config.evaluation import EvaluationConfig, Measurement
from lmsweep.config.identity import drop, run_id
from lmsweep.config.run import Request, RunConfig
from lmsweep.errors import PausedError
from lmsweep.evaluation.jobs import evaluation_job
from lmsweep.evaluation.runs import StoredRun
from lmsweep.processes import call_each
from lmsweep.provenance import machine_name, provenance
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, JobFailedError, Needs, Results, Work, reason, run_job
from lmsweep.store.lease import when_free
from lmsweep.store.store import Store
from lmsweep.store.sweeps import sweeps_by_run
from lmsweep.sweep.plan import state_for
from lmsweep.tracking.tracker import folder_of, mirror_attack, run_card, sweep_tag, tracked
from lmsweep.tracking.wandb_run import CARD, wandb_id
from lmsweep.training.ranks import first_task, follow, local_ranks, task_of

if TYPE_CHECKING:
    from lmsweep.figures.select import Rung
    from lmsweep.training.evaluate import Portrait
    from lmsweep.training.run import Parts


PROBE_SECONDS = 240  # of processor time; then a run counts as one that cannot be estimated
# This module too, because every job that reaches a worker names it.
PRELOAD = ("lmsweep.training.preload", __name__)
# What W&B imports when it is first used, which takes a second.
WANDB = (
    *("pandas", "requests", "wandb.sdk.artifacts.artifact", "wandb.sdk.data_types.table"),
    *("wandb.sdk.wandb_init", "lmsweep.tracking.wandb_run"),
)
# Keys that change the results of a run but hardly its duration.
FREE = (
    *("seed", "data.fraction", "data.label_noise", "model.dropout"),
    *("margin.norm", "margin.gamma", "margin.weight", "margin.epsilon", "margin.clip"),
)


def training_job(config: RunConfig, parts: "Parts | None" = None, pause_at: int | None = None) -> Job:
    """The job of a run, or of its first steps up to a validation at `pause_at` or later.

    `parts` are what `prepare_run` built, when it was called already.
    """
    trainer, identity = config.trainer, config.identity_dict()
    return Job(
        kind="run",
        id=run_id(identity),
        outputs=config.outputs,
        config=config.to_dict(),
        about=config.about(),
        begin=partial(_training, config, parts, pause_at),
        summary=accuracies,
        needs=Needs(trainer.accelerator, trainer.threads, trainer.processes_per_node, trainer.num_nodes),
        cell=run_id({key: value for key, value in identity.items() if key != "seed"}),
        steps=steps_of(config),
        cost=cost_key(config),
        probe=partial(_probe, config),
        preload=(*PRELOAD, *(WANDB if config.tracking.name == "wandb" else ())),
        help=partial(_help, config),
    )


def rung_job(rung: "Rung") -> Job:
    """The job of a rung: train a pilot run up to a step, and record what validation said until then.

    The run itself stays `pending`, and its checkpoint waits for whoever asks for more of it.
    """
    run = training_job(rung.run)
    return Job(
        kind=rung.kind,
        id=rung.id,
        outputs=run.outputs,
        config=rung.frozen,
        about={**run.about, "kind": rung.kind, "target": run.id},
        begin=partial(_climbing, rung),
        summary=_rung_summary,
        needs=run.needs,
        steps=rung.step,
        preload=(*PRELOAD, "lmsweep.figures.select"),
    )


def _climbing(rung: "Rung") -> AbstractContextManager[Work]:
    return nullcontext(partial(_climb, rung))


def _climb(rung: "Rung", _: JobFolder) -> Results:
    from lmsweep.figures.select import scores_until  # imports pandas, which a run does not need

    run = training_job(rung.run, pause_at=rung.step)
    try:
        with suppress(PausedError):  # that is how a run ends on its rung
            when_free(partial(run_job, run))
    except JobFailedError:
        if not run.folder.read_status().get("final"):  # a diverged run is a result
            raise
    status = run.folder.read_status()
    scores = {} if status.get("final") else scores_until(run.folder.metrics, rung.step)
    return {"id": rung.id, **rung.frozen, "scores": scores, "provenance": provenance()}


def _rung_summary(results: Results) -> str:
    scores = results["scores"]
    return f"validation {scores['best']:.2%} at step {results['step']}" if scores else "diverged"


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

    parts = prepare_run(config)  # before the lease: a config that cannot be built leaves nothing behind
    return folder, run_job(training_job(config, parts), force=request.force)


def mirror_late(runs: Mapping[str, RunConfig]) -> None:
    """Mirror finished runs that were trained before anybody asked for that; one process is enough."""
    late = unmirrored(runs)
    if not late:
        return
    tasks = {"mirror": partial(mirror_stored, late)}
    ended = call_each([{}], tasks, log=Path(os.devnull), preload=PRELOAD)["mirror"]
    told = f"{len(late)} runs of the store were mirrored"
    if ended.error or ended.died:
        told = reason(ended.error) if ended.error else f"the process that mirrors runs died by {ended.died}"
    print(f"Tracking: {told}.", file=sys.stderr, flush=True)


def accuracies(results: Results) -> str:
    """The results of a run in a few words."""
    metrics = results["metrics"]
    told = f"validation {metrics['val_accuracy']:.2%}  test {metrics['test_accuracy']:.2%}"
    return f"{told}  ({'; '.join(results['remarks'])})" if results.get("remarks") else told


def total_steps(runs: Mapping[str, RunConfig]) -> int:
    """How many steps the training of all runs takes."""
    return sum(steps_of(run) for run in runs.values())


def steps_of(config: RunConfig) -> int:
    """The steps of a run; active learning trains anew in every round."""
    return config.trainer.max_steps * (1 + config.acquisition.rounds * config.acquisition.active)


def cost_key(config: RunConfig) -> str:
    """Runs with the same key take about as long as each other."""
    identity = config.identity_dict()
    drop(identity, FREE)
    identity["optimizer"] = config.optimizer.target
    identity.pop("schedule", None)
    if config.trainer.processes > 1:  # which changes the duration of a run, but not its identity
        identity["processes"] = config.trainer.processes
    return run_id(identity)


@contextmanager
def _training(config: RunConfig, parts: "Parts | None", pause_at: int | None) -> Iterator[Work]:
    """The work of a run, with its mirror and with the other processes that train it."""
    task = task_of(config, config.id)
    # The mirror ends last, so that no upload keeps results from being recorded.
    with tracked(config, config.id) as tracker, first_task(config, task) as first:

        def work(folder: JobFolder) -> Results:
            from lmsweep.training.run import prepare_run, run
            from lmsweep.training.world import alone

            here = partial(local_ranks, config, folder) if config.trainer.processes > 1 else alone
            company = first.ranks if first else here
            tracker.open()
            ready = parts or prepare_run(config)
            results = run(ready, config.id, folder.path, folder.holding, company, tracker, pause_at)
            return {**results, "cost_key": cost_key(config), "machine": machine_name()}

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
    from lmsweep.training.run import probe_seconds  # imports torch, which only the worker needs

    def too_long(*_: object) -> None:
        raise TimeoutError(f"a probe of {PROBE_SECONDS} s measured nothing")

    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, PROBE_SECONDS)  # the worker ends after the probe, and the timer, too
    return probe_seconds(config)


def mirror_stored(runs: Mapping[str, RunConfig]) -> None:
    """Mirror what is finished and not mirrored with all its tags yet.

    A file that is written anew takes the place of the older one, also at W&B.
    """
    for name, config in unmirrored(runs).items():
        _mirror(name, config)


def unmirrored(runs: Mapping[str, RunConfig]) -> dict[str, RunConfig]:
    """Finished runs that ask for a tracker which lacks them, or the tag of one of their sweeps."""
    sweeps_in, tags_in = cache(sweeps_by_run), cache(_tags)

    def is_lacking(name: str, config: RunConfig) -> bool:
        if config.tracking.name == "none" or Store(config.outputs).folder(name).read_results() is None:
            return False
        folder, sweeps = folder_of(config.tracking, config.outputs), sweeps_in(Path(config.outputs))
        card = run_card(config, name, sweeps.get(name, []))
        if config.tracking.name == "tensorboard":
            return not (folder / f"{card.job_type}-{card.id}").exists()
        tags = tags_in(folder).get(wandb_id(card))
        return tags is None or not {sweep_tag(*pair) for pair in sweeps.get(name, [])} <= tags

    return {name: config for name, config in runs.items() if is_lacking(name, config)}


def _tags(folder: Path) -> dict[str, set[str]]:
    """The tags of every W&B run with files in `folder`, by the newest of them."""
    cards = [json.loads(path.read_bytes()) for path in sorted(folder.glob(f"offline-run-*/{CARD}"))]
    return {card["id"]: set(card["tags"]) for card in cards}


def _mirror(name: str, config: RunConfig) -> None:
    from lmsweep.training.checkpoint import replay

    folder = Store(config.outputs).folder(name)
    results = folder.read_results() or {}
    with tracked(config, name) as tracker:
        tracker.open()
        replay(folder.metrics, tracker.log)
        tracker.describe(results, partial(_portrait, config, folder), folder.checkpoint)


def _portrait(config: RunConfig, folder: JobFolder) -> "Portrait | None":
    if not folder.checkpoint.exists():  # deleted by `lmsweep store gc`
        return None
    import torch

    from lmsweep.evaluation.measure import load_run
    from lmsweep.training.evaluate import portrait

    loaded = load_run(StoredRun(folder, config), config.data.root, torch.device("cpu"))
    options: dict[str, Any] = {"examples": config.tracking.examples, "epsilon": config.tracking.epsilon}
    return portrait(loaded.network, loaded.data.test, loaded.data.num_classes, **options)
