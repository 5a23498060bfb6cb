"""How many jobs run at once, and what each of them may use."""

import os
from collections.abc import Sequence

from lmsweep.errors import ConfigError
from lmsweep.processes import call_each, value_of
from lmsweep.store.lease import SLURM_JOB
from lmsweep.sweep.plan import Plan

Slot = dict[str, str]


def slots(
    *, jobs: int | None, runs_per_gpu: int, gpus: Sequence[str], cores: int, gpus_per_run: int = 1
) -> list[Slot]:
    """The environment of each of the jobs that run at the same time.

    With GPUs, a job sees `gpus_per_run` of them, and `runs_per_gpu` jobs share each; without, there is one
    job per core. `jobs` limits their number or, without GPUs, sets it.
    """
    if not gpus:
        return [{} for _ in range(jobs or cores)]
    if len(gpus) < gpus_per_run:
        raise ConfigError(
            f"trainer.devices={gpus_per_run} needs so many GPUs, and this machine has {len(gpus)} to use; "
            "lower it, or use trainer.accelerator=cpu."
        )
    whole = len(gpus) - len(gpus) % gpus_per_run  # what is left over is too few for a run
    groups = [",".join(gpus[first : first + gpus_per_run]) for first in range(0, whole, gpus_per_run)]
    return [{"CUDA_VISIBLE_DEVICES": group} for _ in range(runs_per_gpu) for group in groups][:jobs]


def places(plan: Plan, *, jobs: int | None = None, runs_per_gpu: int = 1) -> list[Slot]:
    """What the processes that run the jobs of a plan may use, one slot for each of them."""
    needs = [job.needs for job in plan.jobs.values()]
    gpus: list[str] = []
    if not all(need.accelerator == "cpu" for need in needs):
        # In a worker, to keep torch out of this process; this also starts the server of all later workers.
        ended = call_each([{}], {"gpus": visible_gpus}, preload=preload_for(plan))["gpus"]
        gpus = value_of(ended)
    cores = cores_for(max(need.threads * need.devices for need in needs))
    devices = max(need.devices for need in needs)
    return slots(jobs=jobs, runs_per_gpu=runs_per_gpu, gpus=gpus, cores=cores, gpus_per_run=devices)


def preload_for(plan: Plan) -> tuple[str, ...]:
    """What the workers' server imports ahead."""
    return tuple(dict.fromkeys(name for job in plan.jobs.values() for name in job.preload))


def cores_for(threads: int) -> int:
    """How many processes of so many threads the cores of this process can carry."""
    cores = usable_cores()
    if SLURM_JOB in os.environ:  # not every cluster binds a task to the cores it was given
        cores = min(cores, int(os.environ.get("SLURM_CPUS_PER_TASK", cores)))
    return max(1, cores // threads)


def usable_cores() -> int:
    """The cores that this process may use; outside of Linux, where nothing can limit them, all there are."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The GPUs that torch sees, as CUDA_VISIBLE_DEVICES names them. Imports torch."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (named or [str(index) for index in range(torch.cuda.device_count())])[: torch.cuda.device_count()]
