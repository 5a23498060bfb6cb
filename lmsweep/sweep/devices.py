"""How many runs go at once, and what each of them may use."""

import os
from collections.abc import Sequence

from lmsweep.errors import ConfigError
from lmsweep.sweep.claims import SLURM_JOB

Slot = dict[str, str]


def slots(*, jobs: int | None, runs_per_gpu: int, gpus: Sequence[str], cores: int) -> list[Slot]:
    """The environment of each of the processes that work at the same time.

    With GPUs, a process sees one of them, and `runs_per_gpu` share each; without, there is one per core.
    `jobs` limits or, without GPUs, sets the number.
    """
    for name, value in (("jobs", jobs), ("runs_per_gpu", runs_per_gpu)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(
                f"hydra.launcher.{name}={value} is not allowed: it must be a whole number >= 1; change it on "
                "the command line or in conf/hydra/launcher/local.yaml."
            )
    if not gpus:
        return [{} for _ in range(jobs or cores)]
    pinned = [{"CUDA_VISIBLE_DEVICES": gpu} for _ in range(runs_per_gpu) for gpu in gpus]
    return pinned[:jobs]


def cores_for(threads: int) -> int:
    """How many processes of so many threads the cores of this process can carry."""
    cores = len(os.sched_getaffinity(0))
    if SLURM_JOB in os.environ:  # not every cluster binds a task to the cores it was given
        cores = min(cores, int(os.environ.get("SLURM_CPUS_PER_TASK", cores)))
    return max(1, cores // threads)


def visible_gpus() -> list[str]:
    """The GPUs that torch sees, as CUDA_VISIBLE_DEVICES names them. Imports torch."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (named or [str(index) for index in range(torch.cuda.device_count())])[: torch.cuda.device_count()]
