"""A job: anything that is done once and kept, such as a training run or an attack on stored runs."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from lmsweep.store.folder import JobFolder
from lmsweep.store.store import Store

Results = dict[str, Any]
Work = Callable[[JobFolder], Results]


@dataclass(frozen=True)
class Needs:
    """What the processes of a job use."""

    accelerator: str = "auto"
    threads: int = 1
    devices: int = 1  # processes on each node, each with a GPU of its own where there are GPUs
    nodes: int = 1


def _runs_here() -> Results | None:
    return None


@dataclass(frozen=True)
class Job:
    """What is to be done, under which id it is kept, and how it is done.

    A job travels to worker processes and to other machines, so all of it can be pickled, and `begin` imports
    what the work needs.
    """

    kind: str  # "run", or the kind of an evaluation: "attack", "audit", ...
    id: str  # the hash of all that can change the results
    outputs: str  # the folder of the store
    config: Mapping[str, Any]  # frozen: what the folder keeps as config.yaml
    about: Mapping[str, Any]  # what a list shows of the job, `method` first
    # Opens what the work needs around it (a mirror, other processes) and gives the function from the job's
    # folder to its results. What was opened is closed after the results are recorded.
    begin: Callable[[], AbstractContextManager[Work]]
    summary: Callable[[Results], str]  # the results in a few words
    needs: Needs = Needs()
    cell: str = ""  # jobs that differ in nothing but the seed share it
    steps: int = 0  # of training
    cost: str = ""  # jobs with the same cost take about as long as each other
    probe: Callable[[], float] | None = None  # estimates the seconds that the job will take
    preload: tuple[str, ...] = ()  # modules that the server of worker processes imports ahead
    # Where several tasks of a Slurm step share a job, all but the first only help it: the results that the
    # first task recorded. None where this process is to run the job itself.
    help: Callable[[], Results | None] = _runs_here

    @property
    def store(self) -> Store:
        """Where jobs of this kind are kept."""
        return Store(self.outputs, "runs" if self.kind == "run" else "evaluations")

    @property
    def folder(self) -> JobFolder:
        """The job's folder, whether it exists or not."""
        return self.store.folder(self.id)
