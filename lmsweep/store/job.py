"""A job, and how it is run: anything that is done once and kept, such as a training run or an attack."""

import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from lmsweep.errors import FinalError, GivenBackError, UserError
from lmsweep.files import unwritable
from lmsweep.store.folder import JobFolder
from lmsweep.store.lease import LeaseLostError, beating
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
    # Where several tasks of a Slurm step share a job, all but the first only help with it: they call this for
    # the results that the first task recorded. It gives None where this process is to run the job itself.
    help: Callable[[], Results | None] | None = None

    @property
    def store(self) -> Store:
        """Where jobs of this kind are kept."""
        return Store(self.outputs, "runs" if self.kind == "run" else "evaluations")

    @property
    def folder(self) -> JobFolder:
        """The job's folder, whether it exists or not."""
        return self.store.folder(self.id)


class JobFailedError(UserError):
    """A job that stopped with an error; the details are in its folder."""


def run_job(job: Job, *, force: bool = False) -> Results:
    """Take the lease of a job, do its work, and return the results; those that are there cost nothing.

    With `force` the work is done again. What goes wrong once the lease is taken is recorded as a failure.
    """
    helped = job.help() if job.help else None
    if helped is not None:
        return helped
    with job.begin() as work:
        try:
            folder = job.store.lease(job.id, job.config, job.about, force=force)
        except OSError as error:
            raise unwritable(error, job.store.root.parent) or error from None
        if folder is None:
            return job.folder.read_results() or {}
        try:
            with beating(folder.beat):
                results = work(folder)
            folder.finish(results)
        except (KeyboardInterrupt, SystemExit, GivenBackError):
            with suppress(LeaseLostError):
                folder.release()
            raise
        except LeaseLostError:
            raise  # another process has the job now
        except Exception as error:
            raise _failure(job, folder, error) from error
    return folder.read_results() or {}


def reason(error: BaseException) -> str:
    """An error in one line."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def _failure(job: Job, folder: JobFolder, error: Exception) -> UserError:
    """Record why the job stopped, and return that as one sentence."""
    why, root = reason(error), job.store.root.parent
    no_room = unwritable(error, root)
    if no_room is None:
        try:
            with suppress(LeaseLostError):
                folder.fail(why, traceback.format_exc(), final=isinstance(error, FinalError))
            return JobFailedError(f"{job.store.noun} {job.id} failed: {why} (details in {folder.error})")
        except OSError as another:
            no_room = unwritable(another, root)
            if no_room is None:
                raise
    # What the full disk does not take stays behind as a dead process's lease, which anyone takes over.
    with suppress(OSError, LeaseLostError):
        folder.release()
    return no_room
