"""A rung as a job: train a pilot run up to a step, and record what validation said until then.

The run itself stays `pending` in the store, and its checkpoint waits for whoever asks for more of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lmsweep.commands.jobs import PRELOAD, training_job
from lmsweep.errors import PausedError
from lmsweep.figures.halving import KIND, Rung, scores_until
from lmsweep.provenance import provenance
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Results, Work
from lmsweep.store.lease import when_free
from lmsweep.store.run_job import JobFailedError, run_job


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
        preload=(*PRELOAD, __name__),
    )


@contextmanager
def _climbing(rung: Rung) -> Iterator[Work]:
    def work(_: JobFolder) -> Results:
        run = training_job(rung.run, pause_at=rung.step)
        when_free(partial(_climb, run))
        status = run.folder.read_status()
        scores = {} if status.get("final") else scores_until(run.folder.metrics, rung.step)
        return {"id": rung.id, **rung.frozen, "scores": scores, "provenance": provenance()}

    yield work


def _climb(run: Job) -> None:
    """Train a run up to its rung."""
    try:
        run_job(run)
    except PausedError:
        return
    except JobFailedError:
        if not run.folder.read_status().get("final"):  # a diverged run is a result
            raise


def _summary(results: Results) -> str:
    scores = results["scores"]
    return f"validation {scores['best']:.2%} at step {results['step']}" if scores else "diverged"
