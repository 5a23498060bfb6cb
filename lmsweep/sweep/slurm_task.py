"""What one task of a job array does: run its few jobs, inside its share of a node.

One signal path. Slurm's warning before the time limit or a preemption (SIGUSR2) goes to submitit's handler,
which requeues the job and leaves; SIGTERM (scancel, scontrol requeue, preemption, a drained node) means that
Slurm has decided already. Either way the worker processes are stopped and give their jobs back; the Slurm job
that comes after goes on from the last checkpoint. Lightning's own requeueing is switched off.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lmsweep.config.run import Request
from lmsweep.processes import Pool, stop_on_sigterm
from lmsweep.store.job import Job, JobFailedError, run_job
from lmsweep.store.lease import SLURM_JOB
from lmsweep.sweep.devices import places, preload_for
from lmsweep.sweep.local import run_here
from lmsweep.sweep.plan import Plan

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

# Lightning leaves Slurm alone in a job of this name: no signal handlers, no requeueing, no ranks from srun.
UNSEEN_BY_LIGHTNING = {"SLURM_JOB_NAME": "interactive"}


class ArrayTask:
    """The jobs of one task, as they were frozen when it was submitted."""

    def __init__(self, jobs: Sequence[Job], runs_per_gpu: int) -> None:
        self.jobs = list(jobs)
        self.runs_per_gpu = runs_per_gpu

    def __call__(self) -> None:
        """Run what is missing; the store keeps all that counts."""
        from submitit.core.job_environment import JobEnvironment
        from submitit.core.utils import UncompletedJobError

        job = JobEnvironment()
        os.environ[SLURM_JOB] = job.job_id
        stop_on_sigterm()
        plan = Plan.of(self.jobs)
        try:
            if job.num_tasks > 1:
                failed = run_together(plan, job.global_rank)
            else:
                # What was to be tried again is `pending` since the array was submitted; what failed in this
                # job before it was requeued stays failed.
                slots = places(plan, runs_per_gpu=self.runs_per_gpu)[: len(plan.jobs)]
                slots = [{**slot, **UNSEEN_BY_LIGHTNING} for slot in slots]
                failed = list(run_here(plan, Request(retry="none"), slots).failures)
        except KeyboardInterrupt:
            sys.exit(143)
        except UncompletedJobError:
            self._give_up(plan)
            raise
        if failed:
            raise JobFailedError(
                f"{len(failed)} of {len(plan.jobs)} {plan.noun} failed: {', '.join(failed)}."
            )

    def checkpoint(self) -> "DelayedSubmission":
        """What submitit runs when the job is requeued: the same, for the store knows how far it came."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self)

    @staticmethod
    def _give_up(plan: Plan) -> None:
        for name in plan.jobs:
            status = plan.store.folder(name).read_status()
            if status.get("state") in ("pending", "running"):
                reason = f"Slurm job {status.get('slurm')} was requeued too often; raise hydra.launcher.time"
                plan.store.lose(name, status, reason)


def run_together(plan: Plan, rank: int) -> list[str]:
    """Run jobs that span all tasks of the Slurm job, one after the other; `rank` is this task's number.

    All tasks do the same in the same order, each job in a process of its own. Returns what failed.
    """
    failed = []
    pool = Pool([UNSEEN_BY_LIGHTNING], preload_for(plan))
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
