"""`hydra/launcher=slurm`: a plan as a job array on a cluster: submitted, followed, and run by its tasks.

One signal path in a task. Slurm's warning before the time limit or a preemption (SIGUSR2) goes to submitit's
handler, which requeues the job and leaves; SIGTERM (scancel, scontrol requeue, preemption, a drained node)
means that Slurm has decided already. Either way the worker processes are stopped and give their jobs back;
the Slurm job that comes after goes on from the last checkpoint. Lightning's own requeueing is switched off.
"""

import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from hydra.core.utils import JobReturn
from pydantic import Field

from lmsweep.config.fields import Count, CountOrNull, Flag, Name, Node, Positive, Whole, checked
from lmsweep.config.run import Request
from lmsweep.errors import ConfigError, UserError
from lmsweep.files import locked
from lmsweep.processes import Pool, stop_on_sigterm
from lmsweep.store.job import JobFailedError, run_job
from lmsweep.store.lease import SLURM_JOB
from lmsweep.sweep.local import LocalLauncher, LocalSweep, Submission, SweepStoppedError
from lmsweep.sweep.plan import Outcome, Plan, Slot, places
from lmsweep.sweep.slurm_jobs import max_array_size, settle_jobs

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

OptionalName = Annotated[Name | None, Field(description="a name, or null")]
# What submitit calls as we do.
NAMED_ALIKE = {"partition", "account", "qos", "time", "nodes", "cpus_per_task", "array_parallelism", "setup"}


class SlurmOptions(Node):
    """`hydra.launcher` of `hydra/launcher=slurm`; the file says what each key means."""

    partition: OptionalName
    account: OptionalName
    qos: OptionalName
    time: Annotated[int, Field(ge=1, description="a whole number of minutes >= 1")]
    memory: Annotated[Positive | None, Field(description="a number of GB > 0, or null")]
    gpus_per_node: Whole
    cpus_per_task: Count
    nodes: Count
    tasks_per_node: Count
    runs_per_job: Count
    runs_per_gpu: Count
    array_parallelism: Count
    max_queued: CountOrNull
    max_failures: CountOrNull
    setup: Annotated[list[str], Field(description="a list of shell commands")]
    sbatch: Annotated[
        dict[str, str | int | float | bool], Field(description="a group of arguments of sbatch")
    ]
    srun: Annotated[list[str], Field(description="a list of arguments of srun")]
    signal_seconds: Count
    requeues: Whole
    wait: Flag
    poll_seconds: Positive

    def parameters(self) -> dict[str, Any]:
        """What submitit's executor is given; without a value, the cluster decides."""
        wanted = {
            **self.model_dump(include=NAMED_ALIKE),
            "job_name": "lmsweep",
            "mem": f"{round(self.memory * 1024)}M" if self.memory else None,
            "gpus_per_node": self.gpus_per_node or None,
            "ntasks_per_node": self.tasks_per_node,
            "signal_delay_s": self.signal_seconds,
            # Slurm puts a job back into the queue after a preemption or the failure of its node.
            "additional_parameters": {"requeue": True, **self.sbatch},
            # Since Slurm 22.05 srun does not take this from sbatch, and binds the task to one core.
            "srun_args": [f"--cpus-per-task={self.cpus_per_task}", *self.srun],
        }
        return {key: value for key, value in wanted.items() if value is not None}


# Lightning leaves Slurm alone in a job of this name: no signal handlers, no requeueing, no ranks from srun.
UNSEEN_BY_LIGHTNING = {"SLURM_JOB_NAME": "interactive"}


@dataclass(frozen=True)
class ArrayTask:
    """The jobs of one task, as they were frozen when it was submitted."""

    plan: Plan
    runs_per_gpu: int

    def __call__(self) -> None:
        """Run what is missing; the store keeps all that counts."""
        from submitit.core.job_environment import JobEnvironment
        from submitit.core.utils import UncompletedJobError

        job, plan = JobEnvironment(), self.plan
        os.environ[SLURM_JOB] = job.job_id
        stop_on_sigterm()
        try:
            if job.num_tasks > 1:
                failed = run_together(plan, job.global_rank)
            else:
                # What was to be tried again is `pending` since the array was submitted; what failed in this
                # job before it was requeued stays failed.
                slots = places(plan, runs_per_gpu=self.runs_per_gpu)[: len(plan.jobs)]
                slots = [{**slot, **UNSEEN_BY_LIGHTNING} for slot in slots]
                request = Request(retry="none")
                outcome = LocalSweep(plan, request, slots).run(plan.states(request), time.monotonic())
                failed = list(outcome.failures)
        except KeyboardInterrupt:
            sys.exit(143)
        except UncompletedJobError:
            for name in plan.jobs:
                status = plan.store.folder(name).read_status()
                if status.get("state") in ("pending", "running"):
                    why = f"Slurm job {status.get('slurm')} was requeued too often; raise hydra.launcher.time"
                    plan.store.lose(name, status, why)
            raise
        if failed:
            raise JobFailedError(
                f"{len(failed)} of {len(plan.jobs)} {plan.noun} failed: {', '.join(failed)}."
            )

    def checkpoint(self) -> "DelayedSubmission":
        """What submitit runs when the job is requeued: the same, for the store knows how far it came."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self)


def run_together(plan: Plan, rank: int) -> list[str]:
    """Run jobs that span all tasks of the Slurm job, one after the other; `rank` is this task's number.

    All tasks do the same in the same order, each job in a process of its own. Returns what failed.
    """
    failed = []
    pool = Pool([UNSEEN_BY_LIGHTNING], plan.preload)
    try:
        for name, job in plan.jobs.items():
            folder = plan.store.folder(name)
            pool.start(name, partial(run_job, job), folder.log if rank == 0 else None)
            while not (ended := pool.wait(1.0)):
                pass
            if ended[0].died or isinstance(ended[0].error, KeyboardInterrupt):
                raise JobFailedError(f"The process of {name} died ({ended[0].died or 'SIGTERM'}).")
            if ended[0].error:
                failed.append(name)
    finally:
        for name in pool.stop():
            plan.store.give_back(name)
    return failed


class SlurmLauncher(LocalLauncher):
    """Submits what is missing as a job array, or several, and follows them unless `wait` is false."""

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        where = "on the command line or in conf/hydra/launcher/slurm.yaml"
        self.options = checked(SlurmOptions, keys, "hydra.launcher", where)

    def submit(self, plan: Plan, request: Request) -> Outcome:
        at_once = self.options.array_parallelism * self.options.runs_per_job
        sweep = SlurmSweep(plan, request, min(at_once, len(plan.jobs)), self.options)
        with sweep.progress:
            sweep.submit()
            if self.options.wait:
                try:
                    sweep.follow()
                except SweepStoppedError:
                    subprocess.run(["scancel", *sweep.arrays], capture_output=True)  # noqa: S603, S607
                    raise
                except KeyboardInterrupt:
                    print("The jobs go on; scancel stops them.", file=sys.stderr, flush=True)
                    raise
        sweep.report(self.began)
        self.began = time.monotonic()
        return sweep.outcome

    def _places(self, plan: Plan) -> list[Slot]:
        return [{}]  # how many jobs run at once, Slurm decides

    def _launch_others(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        raise ConfigError("hydra/launcher=slurm runs lmsweep only; use hydra/launcher=local for other tasks.")


class QueueFullError(UserError):
    """An account or a partition has as many jobs in the queue as it may have."""


class SlurmSweep(Submission):
    """The jobs of a plan on their way through the queue; all that lasts of it is in the store."""

    def __init__(self, plan: Plan, request: Request, workers: int, options: SlurmOptions) -> None:
        super().__init__(plan, request, workers, options.max_failures)
        self.options = options
        self.folder = plan.outputs / "slurm"  # of scripts, pickled tasks and what these printed
        self.open: list[str] = []  # jobs that somebody runs, or is going to
        self.arrays: list[str] = []  # the ids that Slurm gave to ours
        self.full = False  # whether it was said that the queue takes no more
        self.largest: int | None = None  # tasks of an array, once Slurm was asked

    def submit(self) -> None:
        """Submit what is missing and not on its way already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):  # nobody else submits to this store meanwhile
            alive = settle_jobs(self.store, self.plan.jobs)
            states = self.plan.states(self.request)
            self.open = [name for name, state in states.items() if state == "missing"]
            names = self._nobodys(self.open, alive, self.request.force)
            for name in names:
                self._freeze(name, force=self.request.force)
            self._submit(names, alive)
        for name, state in states.items():
            if state != "missing":
                self.settle(name, cached=True)

    def follow(self) -> None:
        """Look at the queue and the store until every job has an end."""
        while self.open:
            alive = settle_jobs(self.store, self.open)
            for name in list(self.open):
                self._look(name)
            self.stop_if_hopeless()
            # Jobs that the queue had no room for, or that a process outside Slurm had and gave back.
            orphans = self._nobodys(self.open, alive)
            if orphans and self._room(alive):
                self._feed(orphans)
            if self.open:
                time.sleep(self.options.poll_seconds)

    def _feed(self, orphans: Sequence[str]) -> None:
        """Submit the orphans that still nobody has; nobody else submits to this store meanwhile."""
        with locked(self.folder):
            alive = settle_jobs(self.store, self.open)
            names = []
            for name in self._nobodys(orphans, alive):
                state = self.store.folder(name).read_status().get("state")
                if state == "failed":
                    continue  # since the last look; the next one tells
                if state != "pending":
                    self._freeze(name)
                names.append(name)
            self._submit(names, alive)

    def _freeze(self, name: str, *, force: bool = False) -> None:
        job = self.plan.jobs[name]
        self.store.submit(name, job.config, job.about, force=force)

    def _nobodys(self, names: Sequence[str], alive: Collection[str], force: bool = False) -> list[str]:
        """Those to be done, done ones only with `force`, that neither Slurm nor a process works on."""
        found = []
        for name in names:
            folder = self.store.folder(name)
            status = folder.read_status()
            done = status.get("state") == "done" and not force
            if name not in alive and not done and not folder.is_running(status):
                found.append(name)
        return found

    def _room(self, alive: Collection[str]) -> int:
        """How many further tasks may wait in the queue, while Slurm jobs have the runs in `alive`."""
        if self.options.max_queued is None:
            return sys.maxsize
        tasks = {self.store.folder(name).read_status().get("slurm") for name in alive}
        return max(0, self.options.max_queued - len(tasks))

    def _submit(self, names: Sequence[str], alive: Collection[str]) -> None:
        """Submit arrays that are as long as the cluster allows, until the queue takes no more of them.

        What is left stays nobody's: `follow`, or the same command, submits it when there is room.
        """
        if not names:
            return
        size = self.options.runs_per_job
        parts = [names[first : first + size] for first in range(0, len(names), size)]
        largest = self.largest = self.largest or max_array_size() or len(parts)
        arrays = -(-len(parts) // largest)
        at_once = max(1, self.options.array_parallelism // arrays)  # of each array
        most = 1 if self.full else largest  # one task asks whether there is room again
        parts = parts[: self._room(alive)]
        while parts:
            array, rest = parts[:most], parts[most:]
            try:
                self._submit_array(array, at_once)
            except QueueFullError as error:
                if not self.full:
                    print(f"{error} What is left waits for room.", file=sys.stderr, flush=True)
                self.full = True
                if len(array) == 1:
                    return
                most = len(array) // 2
            else:
                parts, most = rest, min(2 * most, largest)

    def _submit_array(self, parts: Sequence[Sequence[str]], at_once: int) -> None:
        plans = [Plan.of([self.plan.jobs[name] for name in part]) for part in parts]
        tasks = [ArrayTask(plan, self.options.runs_per_gpu) for plan in plans]
        for task_id, part in zip(self._sbatch(tasks, at_once), parts, strict=True):
            for name in part:
                self.store.assign(name, task_id)

    def _sbatch(self, tasks: Sequence[ArrayTask], at_once: int) -> list[str]:
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise UserError(
                "hydra/launcher=slurm needs sbatch and srun, which are not here; call it on a login node of "
                "a Slurm cluster, or use hydra/launcher=local."
            )
        from submitit import SlurmExecutor  # takes a second, which other launchers need not spend
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        executor = SlurmExecutor(self.folder.absolute(), max_num_timeout=self.options.requeues)
        given = {**self.options.parameters(), "array_parallelism": at_once}
        executor.update_parameters(**given, wckey=None)
        try:
            with redirect_stderr(io.StringIO()):  # submitit prints what it also raises
                jobs = [job.job_id for job in executor.submit_array(tasks)]
        except (FailedJobError, FailedSubmissionError) as error:
            reason = " ".join(str(error).split()) or "no reason given"
            if "SubmitJob" in reason:  # AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit, ...
                raise QueueFullError(f"Slurm takes no more jobs now ({reason}).") from None
            raise UserError(
                f"Slurm refused an array of {len(tasks)} tasks ({reason}); "
                "change hydra.launcher, where a larger runs_per_job makes a smaller array."
            ) from None
        self.arrays.append(jobs[0].split("_")[0])
        print(f"Submitted as Slurm job {self.arrays[-1]}.", file=sys.stderr, flush=True)
        return jobs

    def _look(self, name: str) -> None:
        """Tell the progress of a job, and take the job from the list when it has an end."""
        status = self.store.folder(name).read_status()
        state = status.get("state")
        if state in ("running", "done") and name not in self.progress.began:
            until = status.get("ended", time.time()) if state == "done" else time.time()
            self.progress.started(name, max(0.0, until - status.get("started", until)))
        if state in ("done", "failed"):
            self.settle(name)
            self.open.remove(name)
        elif state == "pending" and name in self.progress.began:
            self.progress.stopped(name)
