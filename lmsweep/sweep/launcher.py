"""The launcher behind `lmsweep -m ...`: Hydra composes and expands, this executes."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from lmsweep.config.hydra import Composer
from lmsweep.config.request import Request, split
from lmsweep.errors import UserError
from lmsweep.store.sweeps import record_sweep
from lmsweep.sweep.devices import Slot, cores_for, slots
from lmsweep.sweep.estimate import describe
from lmsweep.sweep.local import Outcome
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.pool import call_all
from lmsweep.sweep.run_plan import places, run_plan
from lmsweep.sweep.task import RunTask


class SweepFailedError(UserError):
    """Some runs of a sweep failed; the others are complete."""


class LocalLauncher(Launcher):
    """Trains what is missing in worker processes on this machine.

    Other Hydra applications can use it too: their jobs run in worker processes, each in a fresh one.
    """

    def __init__(self, jobs: int | None = None, runs_per_gpu: int = 1) -> None:
        self.jobs = jobs
        self.runs_per_gpu = runs_per_gpu
        self.config: DictConfig
        self.context: HydraContext
        self.task: TaskFunction

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra gives before it launches."""
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs; afterwards each of them has an end, or the sweep stops with one sentence."""
        if isinstance(self.task, RunTask):
            return self._launch_runs(job_overrides)
        return self._launch_others(job_overrides, initial_job_idx)

    def _launch_runs(self, job_overrides: Sequence[Sequence[str]]) -> list[JobReturn]:
        composer = Composer(self.context.config_loader, self.config, without=("figure",))
        asked = [split(composer.compose(overrides)) for overrides in job_overrides]
        plan, request = Plan.of([config for config, _ in asked]), asked[0][1]
        if request.dry_run:
            print(self._describe(plan, request), flush=True)
            return [_returned(overrides, None) for overrides in job_overrides]
        choices = self.config.hydra.runtime.choices
        scale = (choices.get("scale") or "").rpartition("/")[2]  # laptop of mnist/laptop
        record_sweep(plan.outputs, plan.runs, choices.get("sweep"), scale or None)
        outcome = self._train(plan, request)
        if outcome.failures:
            raise SweepFailedError(
                f"{len(outcome.failures)} of {len(plan.runs)} runs failed; the others are complete."
            )
        scores = {name: float(r["metrics"]["val_accuracy"]) for name, r in outcome.results.items()}
        return [_returned(o, scores.get(name)) for o, name in zip(job_overrides, plan.jobs, strict=True)]

    def _describe(self, plan: Plan, request: Request) -> str:
        return describe(plan, request, self._places(plan))

    def _train(self, plan: Plan, request: Request) -> Outcome:
        return run_plan(plan, request, self._places(plan) if plan.counts(request)["missing"] else [])

    def _places(self, plan: Plan) -> list[Slot]:
        return places(plan, jobs=self.jobs, runs_per_gpu=self.runs_per_gpu)

    def _launch_others(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        free = slots(jobs=self.jobs, runs_per_gpu=1, gpus=[], cores=cores_for(1))
        numbered = {str(first + index): list(overrides) for index, overrides in enumerate(job_overrides)}
        tasks = {number: self._other_job(int(number), words) for number, words in numbered.items()}
        return list(call_all(free, tasks, preload=()).values())

    def _other_job(self, number: int, overrides: list[str]) -> Callable[[], JobReturn]:
        loader: ConfigLoader = self.context.config_loader
        config = loader.load_sweep_config(self.config, list(filter_overrides(overrides)))
        with open_dict(config):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        return partial(_run_other_job, self.context, self.task, config, Singleton.get_state())


def _run_other_job(context: HydraContext, task: TaskFunction, config: DictConfig, state: Any) -> JobReturn:
    setup_globals()
    Singleton.set_state(state)
    return run_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _returned(overrides: Sequence[str], value: float | None) -> JobReturn:
    return JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED, _return_value=value)
