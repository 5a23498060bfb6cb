"""What one task of a job array does: a sweep over its few runs, inside its share of a node.

One signal path. Slurm's warning before the time limit or a preemption (SIGUSR2) goes to submitit's handler,
which requeues the job and leaves; SIGTERM (scancel, scontrol requeue, preemption, a drained node) means that
Slurm has decided already. Either way the worker processes are stopped and give their runs back; the job that
comes after goes on from the last checkpoint. Lightning's own requeueing is switched off.
"""

import os
import sys
from collections.abc import Sequence

from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission, UncompletedJobError

from lmsweep.commands import stop_on_sigterm
from lmsweep.config import RunConfig
from lmsweep.sweep.claims import SLURM_JOB
from lmsweep.sweep.devices import Slot
from lmsweep.sweep.execute import RunFailedError
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.run_plan import places, run_plan
from lmsweep.sweep.standing import Request

# Lightning leaves Slurm alone in a job of this name: no signal handlers, no requeueing, no ranks from srun.
UNSEEN_BY_LIGHTNING = {"SLURM_JOB_NAME": "interactive"}


class ArrayTask:
    """The runs of one task, as they were frozen when it was submitted."""

    def __init__(self, configs: Sequence[RunConfig], runs_per_gpu: int) -> None:
        self.configs = list(configs)
        self.runs_per_gpu = runs_per_gpu

    def __call__(self) -> None:
        """Train what is missing; the store keeps all that counts."""
        os.environ[SLURM_JOB] = JobEnvironment().job_id
        stop_on_sigterm()
        plan = Plan.of(self.configs)
        try:
            # What was to be tried again is `pending` since the array was submitted; what failed in this job
            # before it was requeued stays failed.
            outcome = run_plan(plan, Request(retry="none"), task_slots(plan, self.runs_per_gpu))
        except KeyboardInterrupt:
            sys.exit(143)
        except UncompletedJobError:
            self._give_up(plan)
            raise
        if outcome.failures:
            raise RunFailedError(f"{len(outcome.failures)} of {len(plan.runs)} runs failed.")

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


def task_slots(plan: Plan, runs_per_gpu: int) -> list[Slot]:
    """One slot per GPU of the task; without GPUs, as many as its cores carry."""
    slots = places(plan, runs_per_gpu=runs_per_gpu)
    if not any(slots):  # Slurm need not bind a task to the cores it has
        threads = max(config.trainer.threads for config in plan.runs.values())
        slots = slots[: max(1, int(os.environ.get("SLURM_CPUS_PER_TASK", "1")) // threads)]
    return [{**slot, **UNSEEN_BY_LIGHTNING} for slot in slots[: len(plan.runs)]]
