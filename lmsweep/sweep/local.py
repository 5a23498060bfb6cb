"""`hydra/launcher=local`: a plan is run on this machine, every missing job once, whatever dies on the way.

Hydra instantiates launchers as plugins and calls `launch`, which has a plan made and submitted; `reproduce`
submits its plans itself.
"""

import re
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.core.utils import run_job as run_other_job
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from lmsweep.config.fields import Count, CountOrNull, Node, checked
from lmsweep.config.hydra import Composer
from lmsweep.config.run import Request
from lmsweep.errors import GivenBackError, UserError
from lmsweep.files import StoreUnwritableError
from lmsweep.processes import LIVES, Ended, Pool, call_each, value_of
from lmsweep.store.job import reason, run_job
from lmsweep.store.lease import JobBusyError, LeaseLostError
from lmsweep.sweep.estimate import describe
from lmsweep.sweep.plan import Outcome, Plan, Slot, State, cores_for, places, slots, state_for
from lmsweep.sweep.progress import Progress, duration, label, print_failures

LOOK_EVERY_SECONDS = 0.25  # at jobs that other processes have


class SweepStoppedError(UserError):
    """A sweep that only failed was stopped before all its jobs were tried."""


class Submission:
    """A plan that was submitted, and how those of its jobs ended that have ended.

    `max_failures` is how many jobs may fail for one reason before any other has ended well.
    """

    def __init__(self, plan: Plan, request: Request, workers: int, max_failures: int | None = None) -> None:
        self.plan = plan
        self.store = plan.store
        self.request = request
        self.progress = Progress(plan.about(), workers, plan.noun)
        self.outcome = Outcome(plan)
        self.max_failures = max_failures
        self.tried: dict[str, str] = {}  # jobs that failed now, without their numbers: a path, a step

    def settle(self, name: str, *, cached: bool = False) -> None:
        """Take over what the store says about a job that is done or failed."""
        status, results = self.store.folder(name).look()
        if results is None:
            # A diverged run is a result, and what failed before was not tried now.
            counts = not cached and not status.get("final")
            self.fail(name, str(status.get("reason", "it failed without a reason")), counts=counts)
            return
        self.outcome.results[name] = results
        if cached:
            self.progress.cached(name)
        else:
            self.progress.done(name, self.plan.jobs[name].summary(results))

    def fail(self, name: str, reason: str, *, counts: bool = True) -> None:
        """A job failed."""
        self.outcome.failures[name] = reason
        self.progress.failed(name, reason)
        if counts:
            self.tried[name] = re.sub(r"\d+", "", reason)

    def stop_if_hopeless(self) -> None:
        """Raise SweepStoppedError when so many jobs failed, all alike, and none ended well."""
        alike = len(set(self.tried.values())) == 1 and not self.progress.counts["done"]
        if not alike or self.max_failures is None or len(self.tried) < self.max_failures:
            return
        first = next(iter(self.tried))
        raise SweepStoppedError(
            f"Stopped, because the first {len(self.tried)} {self.plan.noun} all failed for one reason: "
            f"{self.outcome.failures[first]} (details in {self.store.folder(first).error}). "
            f"{self.progress.left} more were not tried; the same command goes on, with "
            "hydra.launcher.max_failures=null to the end."
        )

    def report(self, began: float) -> None:
        """Print a line about what happened since `began`, and a table of what failed."""
        plan, about = self.plan, self.progress.about
        numbers = {**self.progress.counts, "on their way": self.progress.left}
        counts = ", ".join(f"{n} {what}" for what, n in numbers.items() if n)
        repeats = len(plan.asked) - len(plan.jobs)
        asked = f" ({len(plan.asked)} jobs, {repeats} of them repeats)" if repeats else ""
        spent = duration(time.monotonic() - began)
        print(f"{len(plan.jobs)} {plan.noun}{asked}: {counts}, in {spent}; {self.store.root}", flush=True)
        failures = self.outcome.failures.items()
        rows = [(name, label(about[name]), why, str(self.store.folder(name).error)) for name, why in failures]
        if rows:
            print_failures(rows, plan.noun)


class LocalSweep(Submission):
    """The jobs of a plan on their way from missing to done, in worker processes."""

    def __init__(
        self, plan: Plan, request: Request, slots: Sequence[Slot], max_failures: int | None = None
    ) -> None:
        super().__init__(plan, request, len(slots), max_failures)
        self.pool = Pool(slots, plan.preload)
        self.began = time.time()
        self.queue: deque[str] = deque()  # jobs that are to be done, and at its end those of other processes
        self.deaths: Counter[str] = Counter()
        self.unwritable: StoreUnwritableError | None = None

    def run(self, states: Mapping[str, State], began: float) -> Outcome:
        """Run what is missing, show progress, and print a line about it and what failed.

        `states` are those of the plan; `began` is when the caller began to plan, which counts, too.
        """
        with self.progress:
            self._run(states)
        self.report(began)
        return self.outcome

    def _run(self, states: Mapping[str, State]) -> None:
        """Run what is missing. Ctrl-C gives back what is under way; a full disk ends the sweep."""
        if "missing" in states.values():
            self.pool.warm_up()
        for name, state in states.items():
            if state == "missing":
                job = self.plan.jobs[name]
                if not self.request.force:
                    self.store.submit(name, job.config, job.about)
                self.queue.append(name)
            else:
                self.settle(name, cached=True)
        try:
            while (self.queue and not self.unwritable) or self.pool.workers:
                self._start()
                for ended in self.pool.wait(LOOK_EVERY_SECONDS):
                    self._end(ended)
                    self.stop_if_hopeless()
                self.progress.tick()
        finally:
            for name in self.pool.stop():
                self.store.give_back(name)
        if self.unwritable:
            raise self.unwritable

    def _start(self) -> None:
        elsewhere = []
        while self.queue and self.pool.free and not self.unwritable:
            name = self.queue.popleft()
            folder = self.store.folder(name)
            status = folder.read_status()
            if folder.is_running(status):
                elsewhere.append(name)
            elif self._is_settled(status):
                self.settle(name, cached=True)
            else:
                work = partial(run_job, self.plan.jobs[name], force=self.request.force)
                self.pool.start(name, work, folder.log)
                self.progress.started(name, log=folder.log)
        self.queue.extend(elsewhere)

    def _is_settled(self, status: Mapping[str, Any]) -> bool:
        """Whether another process finished the job since this sweep began, or failed at it."""
        since = status.get("ended", 0) >= self.began
        if status.get("state") == "failed":
            return since
        return state_for(status, self.request) == "done" or (status.get("state") == "done" and since)

    def _end(self, ended: Ended) -> None:
        name, error = ended.key, ended.error
        if isinstance(error, StoreUnwritableError):
            self.unwritable = error
            self.progress.stopped(name)
        elif isinstance(error, JobBusyError | LeaseLostError):
            self._leave(name)
        elif ended.died or isinstance(error, KeyboardInterrupt | GivenBackError):
            self._revive(name, ended.died or "SIGTERM")
        elif error is None or self.store.folder(name).read_status().get("state") == "failed":
            self.settle(name)
        else:
            self.fail(name, reason(error))

    def _revive(self, name: str, death: str) -> None:
        self.deaths[name] += 1
        self.progress.stopped(name)
        if self.deaths[name] < LIVES:
            self.queue.appendleft(name)
            return
        why = f"its process died {LIVES} times, the last time by {death}; is there enough memory?"
        job = self.plan.jobs[name]
        try:
            folder = self.store.lease(name, job.config, job.about)  # replaces an end from before this sweep
        except JobBusyError:  # another process has the job
            self._leave(name)
            return
        if folder is not None:
            folder.fail(why, f"See {folder.log} for what it printed.\n")
        self.settle(name)

    def _leave(self, name: str) -> None:
        """Let another process finish the job; look now and then whether it has."""
        self.queue.append(name)
        self.progress.elsewhere(name)


@runtime_checkable
class SweepTask(Protocol):
    """A task function that can do more with configurations than be called with each of them."""

    def sweep(
        self, configs: Iterable[Mapping[str, Any]], choices: Mapping[str, str], launcher: "LocalLauncher"
    ) -> Sequence[float | None]:
        """Do what all configurations ask for; return what each of them returns to Hydra.

        `choices` are the options of the groups that all of them share.
        """


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
        outcome = LocalSweep(plan, request, slots, self.local.max_failures).run(states, self.began)
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
        if not isinstance(task, SweepTask):
            return self._launch_others(job_overrides, initial_job_idx)
        composer = Composer(self.context.config_loader, self.config, without=("figure",))
        configs = map(composer.compose, job_overrides)
        returned = task.sweep(configs, self.config.hydra.runtime.choices, self)
        return [
            JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED, _return_value=value)
            for overrides, value in zip(job_overrides, returned, strict=True)
        ]

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
    return run_other_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
