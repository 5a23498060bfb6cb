"""`lmsweep key=value ...` is one run, `lmsweep -m key=a,b ...` a sweep: Hydra composes, the schema checks."""

import gc
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from lmsweep.commands import reported
from lmsweep.config.hydra import as_dict, config_folder
from lmsweep.config.run import check_sweepable, split
from lmsweep.config.sweeps import with_full_scale
from lmsweep.errors import UserError
from lmsweep.processes import stop_on_sigterm
from lmsweep.store.job import Results
from lmsweep.store.lease import when_free
from lmsweep.store.sweeps import record_sweep
from lmsweep.sweep.local import LocalLauncher
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.sweeper import register_plugins


@reported()
def run_command() -> None:
    """Entry point of a run or a sweep."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that `reported` can explain
    register_plugins()
    stop_on_sigterm()
    sys.argv[1:] = shown_resolved(with_full_scale(sys.argv[1:]))
    hydra.main(version_base="1.3", config_path=config_folder(), config_name="config")(RunTask())()


def shown_resolved(arguments: list[str]) -> list[str]:
    """`--cfg job` with `--resolve`, so that it shows the value of a gamma that follows from the norm."""
    is_shown = any(flag in ("--cfg", "-c") and what == "job" for flag, what in pairwise(arguments))
    return [*arguments, "--resolve"] if is_shown and "--resolve" not in arguments else arguments


class SweepFailedError(UserError):
    """Some runs of a sweep failed; the others are complete."""


class RunTask:
    """What Hydra calls with a composed configuration; our launchers make a job of it instead."""

    def __call__(self, config: DictConfig) -> float | None:
        """Train, or read what is there, print one line, and return the validation accuracy."""
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return run_one(as_dict(config), wait=True)  # launchers of others see the errors
        # Caught here too, because Hydra prints a line of its own about any error that leaves a job.
        with reported():
            run_one(as_dict(config))
        return None

    def sweep(
        self, configs: Iterable[Mapping[str, Any]], choices: Mapping[str, str], launcher: LocalLauncher
    ) -> list[float | None]:
        """Train what is missing of a grid; return validation accuracies, for sweepers that search."""
        from lmsweep.commands.jobs import mirror_late, training_job

        gc.disable()  # all runs stay: looking through tens of thousands again and again takes long
        try:
            asked = [split(plain) for plain in configs]
            for config, _ in asked:
                check_sweepable(config)
            plan, request = Plan.of([training_job(config) for config, _ in asked]), asked[0][1]
        finally:
            gc.enable()
        if request.dry_run:
            print(launcher.describe(plan, request), flush=True)
            return [None for _ in asked]
        scale = (choices.get("scale") or "").rpartition("/")[2]  # laptop of mnist/laptop
        record_sweep(plan.outputs, plan.jobs, request.name or choices.get("sweep"), scale or None)
        outcome = launcher.submit(plan, request)
        mirror_late(dict(zip(plan.asked, (config for config, _ in asked), strict=True)))
        if outcome.failures:
            raise SweepFailedError(
                f"{len(outcome.failures)} of {len(plan.jobs)} runs failed; the others are complete."
            )
        return [_score(outcome.results[name]) if name in outcome.results else None for name in plan.asked]


def run_one(plain: Mapping[str, Any], *, wait: bool = False) -> float | None:
    """Do what a composed configuration asks for; None when it is only a rehearsal.

    `wait` for another process that has the run, rather than saying so.
    """
    from lmsweep.commands.jobs import accuracies, run_training, training_job
    from lmsweep.sweep.estimate import describe
    from lmsweep.training.ranks import task_of

    config, request = split(plain)
    if request.dry_run:
        plan = Plan.of([training_job(config)])
        print(describe(plan, plan.states(request)), flush=True)
        return None

    train = partial(run_training, config, request)
    folder, results = when_free(train) if wait else train()
    task = task_of(config, folder.id)
    if task is not None and task.rank > 0:
        return None  # task 0 speaks
    print(f"{folder.path}  {accuracies(results)}", flush=True)
    return _score(results)


def _score(results: Results) -> float:
    return float(results["metrics"]["val_accuracy"])
