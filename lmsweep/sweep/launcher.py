"""Launchers run the jobs of a plan that is submitted to them. Hydra's `-m` and `reproduce` use the same ones.

Hydra instantiates launchers as plugins and calls `launch`, which makes a plan and submits it.
"""

import gc
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from lmsweep.config.fields import Count, CountOrNull, Node, checked
from lmsweep.config.hydra import Composer
from lmsweep.config.run import Request
from lmsweep.errors import UserError
from lmsweep.processes import call_each, value_of
from lmsweep.store.job import Job, Results
from lmsweep.store.sweeps import record_sweep
from lmsweep.sweep.devices import Slot, cores_for, places, slots
from lmsweep.sweep.estimate import describe
from lmsweep.sweep.local import run_here
from lmsweep.sweep.plan import Outcome, Plan


class SweepFailedError(UserError):
    """Some runs of a sweep failed; the others are complete."""


@runtime_checkable
class JobTask(Protocol):
    """A task function whose configurations are jobs, so that a launcher can do more than call it."""

    def job(self, plain: Mapping[str, Any]) -> tuple[Job, Request]:
        """The job that a composed configuration describes, and what the call wants done about it."""

    def score(self, results: Results) -> float:
        """What a job returns to Hydra."""

    def after(self, plan: Plan) -> None:
        """Called when all jobs of a plan have an end."""


class LocalOptions(Node):
    """`hydra.launcher` of `hydra/launcher=local`; the file says what each key means."""

    jobs: CountOrNull = None
    runs_per_gpu: Count = 1
    max_failures: CountOrNull = None


class LocalLauncher(Launcher):
    """Runs what is missing in worker processes on this machine.

    Other Hydra applications can use it too: their jobs run in worker processes, each in a fresh one.
    """

    def __init__(self, **keys: Any) -> None:
        where = "on the command line or in conf/hydra/launcher/local.yaml"
        self.local = checked(LocalOptions, keys, "hydra.launcher", where)
        self.began = time.monotonic()  # to plan what is submitted next: users wait for that, too
        self.config: DictConfig
        self.context: HydraContext
        self.task: TaskFunction

    def submit(self, plan: Plan, request: Request) -> Outcome:
        """Have the jobs of a plan run, as far as they are missing, and say how they ended."""
        states = plan.states(request)
        slots = self._places(plan) if "missing" in states.values() else []
        outcome = run_here(plan, request, slots, states, self.began, self.local.max_failures)
        self.began = time.monotonic()
        return outcome

    def describe(
        self, plan: Plan, request: Request, figures: Mapping[str, Collection[str]] | None = None
    ) -> str:
        """What submitting the plan would do and cost, for each of the `figures` that ask for its jobs."""
        states = plan.states(request)
        slots = self._places(plan) if "missing" in states.values() else [{}]
        return describe(plan, states, slots, figures)

    def _places(self, plan: Plan) -> list[Slot]:
        return places(plan, jobs=self.local.jobs, runs_per_gpu=self.local.runs_per_gpu)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        task: object = self.task
        if isinstance(task, JobTask):
            return self._launch_jobs(task, job_overrides)
        return self._launch_others(job_overrides, initial_job_idx)

    def _launch_jobs(self, task: JobTask, job_overrides: Sequence[Sequence[str]]) -> list[JobReturn]:
        composer = Composer(self.context.config_loader, self.config, without=("figure",))
        gc.disable()  # all jobs stay: looking through tens of thousands again and again takes long
        try:
            asked = [task.job(composer.compose(overrides)) for overrides in job_overrides]
        finally:
            gc.enable()
        plan, request = Plan.of([job for job, _ in asked]), asked[0][1]
        if request.dry_run:
            print(self.describe(plan, request), flush=True)
            return [_returned(overrides, None) for overrides in job_overrides]
        choices = self.config.hydra.runtime.choices
        scale = (choices.get("scale") or "").rpartition("/")[2]  # laptop of mnist/laptop
        record_sweep(plan.outputs, plan.jobs, request.name or choices.get("sweep"), scale or None)
        outcome = self.submit(plan, request)
        task.after(plan)
        if outcome.failures:
            raise SweepFailedError(
                f"{len(outcome.failures)} of {len(plan.jobs)} runs failed; the others are complete."
            )
        scores = {name: task.score(results) for name, results in outcome.results.items()}
        return [_returned(o, scores.get(name)) for o, name in zip(job_overrides, plan.asked, strict=True)]

    def _launch_others(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        free = slots(jobs=self.local.jobs, runs_per_gpu=1, gpus=[], cores=cores_for(1))
        loader, state, tasks = self.context.config_loader, Singleton.get_state(), {}
        for number, overrides in enumerate(job_overrides, first):
            config = loader.load_sweep_config(self.config, list(filter_overrides(overrides)))
            with open_dict(config):
                config.hydra.job.id, config.hydra.job.num = str(number), number
            tasks[str(number)] = partial(_run_other_job, self.context, self.task, config, state)
        return [value_of(ended) for ended in call_each(free, tasks).values()]


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
