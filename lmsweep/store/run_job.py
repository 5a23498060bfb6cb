"""Run one job: take its lease, do the work, record what happened. Asking again for a finished job is free."""

import traceback
from contextlib import suppress

from lmsweep.errors import FinalError, GivenBackError, UserError
from lmsweep.files import unwritable
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Results
from lmsweep.store.lease import LeaseLostError, beating


class JobFailedError(UserError):
    """A job that stopped with an error; the details are in its folder."""


def run_job(job: Job, *, force: bool = False) -> Results:
    """Return the results of a job, doing its work only when they are missing (or with `force`).

    Whatever goes wrong after the lease was taken is recorded as the job's failure.
    """
    helped = job.help()
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
            with beating([folder]):
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
    no_room = unwritable(error, job.store.root.parent)
    why = reason(error)
    if no_room is None:
        try:
            with suppress(LeaseLostError):
                folder.fail(why, traceback.format_exc(), final=isinstance(error, FinalError))
        except OSError as another:
            no_room = unwritable(another, job.store.root.parent)
            if no_room is None:
                raise
    if no_room is not None:
        # What the full disk does not take stays behind as a dead process's lease, which anyone takes over.
        with suppress(OSError, LeaseLostError):
            folder.release()
        return no_room
    return JobFailedError(f"{job.store.noun} {job.id} failed: {why} (details in {folder.error})")
