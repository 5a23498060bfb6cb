"""What one task of a job array does: a sweep over its few runs, inside its share of a node.

One signal path. Slurm's warning before the time limit or a preemption (SIGUSR2) goes to submitit's handler,
which requeues the job and leaves; SIGTERM (scancel, scontrol requeue, preemption, a drained node) means that
Slurm has decided already. Either way the worker processes are stopped and give their runs back; the job that
comes after goes on from the last checkpoint. Lightning's own requeueing is switched off.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial

from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission, UncompletedJobError

from lmsweep.commands.common import stop_on_sigterm
from lmsweep.config.request import Request
from lmsweep.config.run import RunConfig
from lmsweep.store.lease import SLURM_JOB
from lmsweep.sweep.devices import Slot
from lmsweep.sweep.execute import RunFailedError, train
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.pool import Pool
from lmsweep.sweep.run_plan import places, run_plan

# Lightning leaves Slurm alone in a job of this name: no signal handlers, no requeueing, no ranks from srun.
UNSEEN_BY_LIGHTNING = {"SLURM_JOB_NAME": "interactive"}


class ArrayTask:
    """The runs of one task, as they were frozen when it was submitted."""

    def __init__(self, configs: Sequence[RunConfig], runs_per_gpu: int) -> None:
        self.configs = list(configs)
        self.runs_per_gpu = runs_per_gpu

    def __call__(self) -> None:
        """Train what is missing; the store keeps all that counts."""
        job = JobEnvironment()
        os.environ[SLURM_JOB] = job.job_id
        stop_on_sigterm()
        plan = Plan.of(self.configs)
        try:
            if job.num_tasks > 1:
                failed = train_together(plan, job.global_rank)
            else:
                # What was to be tried again is `pending` since the array was submitted; what failed in this
                # job before it was requeued stays failed.
                failed = list(run_plan(plan, Request(retry="none"), self._slots(plan)).failures)
        except KeyboardInterrupt:
            sys.exit(143)
        except UncompletedJobError:
            self._give_up(plan)
            raise
        if failed:
            raise RunFailedError(f"{len(failed)} of {len(plan.runs)} runs failed: {', '.join(failed)}.")

    def _slots(self, plan: Plan) -> list[Slot]:
        slots = places(plan, runs_per_gpu=self.runs_per_gpu)
        return [{**slot, **UNSEEN_BY_LIGHTNING} for slot in slots[: len(plan.runs)]]

    def checkpoint(self) -> DelayedSubmission:
        """What submitit runs when the job is requeued: the same, for the store knows how far it came."""
        return DelayedSubmission(self)

    @staticmethod
    def _give_up(plan: Plan) -> None:
        for name in plan.runs:
            status = plan.store.run(name).read_status()
            if status.get("state") in ("pending", "running"):
                reason = f"Slurm job {status.get('slurm')} was requeued too often; raise hydra.launcher.time"
                plan.store.lose(name, status, reason)


def train_together(plan: Plan, rank: int) -> list[str]:
    """Train runs that span all tasks of the job, one after the other; `rank` is this task's number.

    All tasks do the same in the same order, each run in a process of its own. Returns what failed.
    """
    failed = []
    pool = Pool([UNSEEN_BY_LIGHTNING])
    try:
        for name, config in plan.runs.items():
            folder = plan.store.run(name)
            pool.start(name, partial(train, config), folder.log if rank == 0 else None)
            while not (ended := pool.wait(1.0)):
                pass
            if ended[0].died or isinstance(ended[0].error, KeyboardInterrupt):
                raise RunFailedError(f"The process of run {name} died ({ended[0].died or 'SIGTERM'}).")
            if ended[0].error:
                failed.append(name)
    finally:
        for name in pool.stop():
            plan.store.give_back(name)
    return failed
