"""A rung as a job: train a pilot run up to a step, and record what validation said until then.

The run itself stays `pending` in the store, and its checkpoint waits for whoever asks for more of it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lmsweep.commands.jobs import PRELOAD, training_job
from lmsweep.errors import PausedError
from lmsweep.figures.halving import KIND, Rung, scores_until
from lmsweep.provenance import provenance
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Results, Work
from lmsweep.store.lease import JobBusyError
from lmsweep.store.run_job import JobFailedError, run_job

LOOK_EVERY_SECONDS = 1.0  # at a run that another process trains


def rung_job(rung: Rung) -> Job:
    """The job of a rung; it is kept among the evaluations."""
    run = training_job(rung.run)
    return Job(
        kind=KIND,
        id=rung.id,
        outputs=run.outputs,
        config=rung.frozen,
        about={**run.about, "kind": KIND, "target": run.id},
        begin=partial(_climbing, rung),
        summary=_summary,
        needs=run.needs,
        steps=rung.step,
        preload=(PRELOAD,),
    )


@contextmanager
def _climbing(rung: Rung) -> Iterator[Work]:
    def work(_: JobFolder) -> Results:
        run = training_job(rung.run, pause_at=rung.step)
        while not _is_there(run):
            time.sleep(LOOK_EVERY_SECONDS)
        status = run.folder.read_status()
        scores = {} if status.get("final") else scores_until(run.folder.metrics, rung.step)
        return {"id": rung.id, **rung.frozen, "scores": scores, "provenance": provenance()}

    yield work


def _is_there(run: Job) -> bool:
    """Train a run up to its rung; False while another process has the run."""
    try:
        run_job(run)
    except PausedError:
        return True
    except JobBusyError:
        return False
    except JobFailedError:
        if not run.folder.read_status().get("final"):  # a diverged run is a result
            raise
    return True


def _summary(results: Results) -> str:
    scores = results["scores"]
    return f"validation {scores['best']:.2%} at step {results['step']}" if scores else "diverged"
