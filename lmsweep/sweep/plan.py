"""Which jobs were asked for, each of them once, what has to be done about them, and what each may use."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lmsweep.config.run import Request
from lmsweep.errors import ConfigError
from lmsweep.processes import call_each, value_of
from lmsweep.store.job import Job, Results
from lmsweep.store.lease import SLURM_JOB
from lmsweep.store.store import Store

State = Literal["done", "failed", "missing"]
Slot = dict[str, str]  # what one of the processes that run jobs has in its environment


@dataclass(frozen=True)
class Plan:
    """The ids that were asked for, in order and with repeats, and the job behind each id."""

    asked: list[str]
    jobs: Mapping[str, Job]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> "Plan":
        """Plan these jobs; equal ones, and ones that differ in unused keys, are one job."""
        if len({job.outputs for job in jobs}) > 1:
            raise ConfigError("outputs cannot be swept: all runs of a sweep are kept in one store.")
        return cls([job.id for job in jobs], {job.id: job for job in jobs})

    @property
    def store(self) -> Store:
        """Where the jobs are kept; a plan holds runs or evaluations, never both."""
        return next(iter(self.jobs.values())).store

    @property
    def outputs(self) -> Path:
        """The folder of the store."""
        return Path(next(iter(self.jobs.values())).outputs)

    @property
    def noun(self) -> str:
        """What the jobs are called: runs or evaluations."""
        return self.store.root.name

    @property
    def preload(self) -> tuple[str, ...]:
        """What the workers' server imports ahead."""
        return tuple(dict.fromkeys(name for job in self.jobs.values() for name in job.preload))

    def about(self) -> dict[str, Mapping[str, Any]]:
        """What a list shows of each job."""
        return {name: job.about for name, job in self.jobs.items()}

    def states(self, request: Request) -> dict[str, State]:
        """What has to be done about each job."""
        store = self.store
        there = {folder.id for folder in store.folders()}
        looked = {name: store.folder(name).read_status() if name in there else {} for name in self.jobs}
        return {name: state_for(status, request) for name, status in looked.items()}


@dataclass
class Outcome:
    """How the jobs of a plan ended; those in neither are still on their way."""

    plan: Plan
    results: dict[str, Results] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many jobs are on their way, because the launcher did not wait for their end."""
        return len(self.plan.jobs) - len(self.results) - len(self.failures)

    @property
    def broken(self) -> list[str]:
        """Failed jobs that another call may do; a diverged run is a result."""
        jobs = self.plan.jobs
        return [name for name in self.failures if not jobs[name].folder.read_status().get("final")]


def state_for(status: Mapping[str, Any], request: Request) -> State:
    """Whether a job with this status is `done`, stays `failed`, or is to be run (`missing`)."""
    if request.force:
        return "missing"
    if status.get("state") == "done":
        return "done"
    if status.get("state") == "failed" and (request.retry == "none" or status.get("final")):
        return "failed"
    return "missing"


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
        ended = call_each([{}], {"gpus": visible_gpus}, preload=plan.preload)["gpus"]
        gpus = value_of(ended)
    cores = cores_for(max(need.threads * need.devices for need in needs))
    devices = max(need.devices for need in needs)
    return slots(jobs=jobs, runs_per_gpu=runs_per_gpu, gpus=gpus, cores=cores, gpus_per_run=devices)


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
