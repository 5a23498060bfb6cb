"""Which jobs were asked for, each of them once, and what has to be done about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lmsweep.config.run import Request
from lmsweep.errors import ConfigError
from lmsweep.store.job import Job, Results
from lmsweep.store.store import Store

State = Literal["done", "failed", "missing"]


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
