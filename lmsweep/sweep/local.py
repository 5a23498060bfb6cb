"""Run a plan on this machine: every missing job once, whatever dies on the way."""

import re
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lmsweep.config.run import Request
from lmsweep.errors import GivenBackError, UserError
from lmsweep.files import StoreUnwritableError
from lmsweep.processes import LIVES, Ended, Pool
from lmsweep.store.job import Results, reason, run_job
from lmsweep.store.lease import JobBusyError, LeaseLostError
from lmsweep.sweep.devices import Slot, preload_for
from lmsweep.sweep.plan import Outcome, Plan, State, state_for
from lmsweep.sweep.progress import Progress, duration, label, print_failures

LOOK_EVERY_SECONDS = 0.5  # at jobs that other processes have


class SweepStoppedError(UserError):
    """A sweep that only failed was stopped before all its jobs were tried."""


class Submission:
    """A plan that was submitted, and how those of its jobs ended that have ended.

    `max_failures` is how many jobs may fail for one reason before any other has ended well.
    """

    def __init__(
        self, plan: Plan, request: Request, progress: Progress, max_failures: int | None = None
    ) -> None:
        self.plan = plan
        self.store = plan.store
        self.request = request
        self.progress = progress
        self.outcome = Outcome()
        self.max_failures = max_failures
        self.tried: dict[str, str] = {}  # jobs that failed now, without their numbers: a path, a step

    def settle(self, name: str, *, cached: bool = False) -> None:
        """Take over what the store says about a job that is done or failed."""
        status, results = self.store.folder(name).look()
        if results is None:
            # A diverged run is a result, and what failed before was not tried now.
            counts = not cached and not status.get("final")
            self.fail(name, str(status.get("reason", "it failed without a reason")), counts=counts)
            return
        if cached:
            self.outcome.results[name] = results
            self.progress.cached(name)
        else:
            self.done(name, results)

    def done(self, name: str, results: Results) -> None:
        """A job of ours has these results."""
        self.outcome.results[name] = results
        self.progress.done(name, self.plan.jobs[name].summary(results))

    def fail(self, name: str, reason: str, *, counts: bool = True) -> None:
        """A job failed."""
        self.outcome.failures[name] = reason
        self.progress.failed(name, reason)
        if counts:
            self.tried[name] = re.sub(r"\d+", "", reason)

    def stop_if_hopeless(self) -> None:
        """Raise SweepStoppedError when so many jobs failed, all alike, and none ended well."""
        alike = len(set(self.tried.values())) == 1 and not self.progress.counts["done"]
        if not alike or self.max_failures is None or len(self.tried) < self.max_failures:
            return
        first = next(iter(self.tried))
        raise SweepStoppedError(
            f"Stopped, because the first {len(self.tried)} {self.plan.noun} all failed for one reason: "
            f"{self.outcome.failures[first]} (details in {self.store.folder(first).error}). "
            f"{self.progress.left} more were not tried; the same command goes on, with "
            "hydra.launcher.max_failures=null to the end."
        )


class LocalSweep(Submission):
    """The jobs of a plan on their way from missing to done, in worker processes."""

    def __init__(
        self,
        plan: Plan,
        request: Request,
        progress: Progress,
        pool: Pool,
        max_failures: int | None = None,
    ) -> None:
        super().__init__(plan, request, progress, max_failures)
        self.pool = pool
        self.began = time.time()
        self.queue: deque[str] = deque()
        self.elsewhere: dict[str, float] = {}  # jobs of other processes, and when to look at them again
        self.deaths: Counter[str] = Counter()
        self.unwritable: StoreUnwritableError | None = None

    def run(self, states: Mapping[str, State]) -> Outcome:
        """Run what is missing. Ctrl-C gives back what is under way; a full disk ends the sweep."""
        if "missing" in states.values():
            self.pool.warm_up()
        for name, state in states.items():
            if state == "missing":
                job = self.plan.jobs[name]
                if not self.request.force:
                    self.store.submit(name, job.config, job.about)
                self.queue.append(name)
            else:
                self.settle(name, cached=True)
        try:
            while (self.queue and not self.unwritable) or self.pool.workers or self.elsewhere:
                self._start()
                for ended in self.pool.wait(LOOK_EVERY_SECONDS / 2):
                    self._end(ended)
                    self.stop_if_hopeless()
                self._look_elsewhere()
                self.progress.tick()
        finally:
            for name in self.pool.stop():
                self.store.give_back(name)
        if self.unwritable:
            raise self.unwritable
        return self.outcome

    def _start(self) -> None:
        while self.queue and self.pool.free and not self.unwritable:
            name = self.queue.popleft()
            folder = self.store.folder(name)
            status = folder.read_status()
            if folder.is_running(status):
                self._leave(name)
            elif self._is_settled(status):
                self.settle(name, cached=True)
            else:
                work = partial(run_job, self.plan.jobs[name], force=self.request.force)
                self.pool.start(name, work, folder.log)
                self.progress.started(name, log=folder.log)

    def _is_settled(self, status: Mapping[str, Any]) -> bool:
        """Whether another process finished the job since this sweep began, or failed at it."""
        since = status.get("ended", 0) >= self.began
        if status.get("state") == "failed":
            return since
        return state_for(status, self.request) == "done" or (status.get("state") == "done" and since)

    def _end(self, ended: Ended) -> None:
        name, error = ended.key, ended.error
        if isinstance(ended.value, dict):
            self.done(name, ended.value)
        elif isinstance(error, StoreUnwritableError):
            self.unwritable = error
            self.progress.stopped(name)
        elif isinstance(error, JobBusyError | LeaseLostError):
            self._leave(name)
        elif ended.died or isinstance(error, KeyboardInterrupt | GivenBackError):
            self._revive(name, ended.died or "SIGTERM")
        elif self.store.folder(name).read_status().get("state") == "failed":
            self.settle(name)
        else:
            self.fail(name, reason(error) if error else "it ended without a result")

    def _revive(self, name: str, death: str) -> None:
        self.deaths[name] += 1
        self.progress.stopped(name)
        if self.deaths[name] < LIVES:
            self.queue.appendleft(name)
            return
        why = f"its process died {LIVES} times, the last time by {death}; is there enough memory?"
        job = self.plan.jobs[name]
        try:
            folder = self.store.lease(name, job.config, job.about)
        except JobBusyError:
            self._leave(name)
            return
        if folder is not None:
            folder.fail(why, f"See {folder.log} for what it printed.\n")
        self.settle(name)

    def _leave(self, name: str) -> None:
        """Let another process finish the job; look now and then whether it has."""
        self.elsewhere[name] = time.monotonic() + LOOK_EVERY_SECONDS
        self.progress.elsewhere(name)

    def _look_elsewhere(self) -> None:
        now = time.monotonic()
        for name in [name for name, due in self.elsewhere.items() if due <= now]:
            folder = self.store.folder(name)
            status = folder.read_status()
            if folder.is_running(status):
                self.elsewhere[name] = now + LOOK_EVERY_SECONDS
                continue
            del self.elsewhere[name]
            if self._is_settled(status):
                self.settle(name, cached=True)
            elif not self.unwritable:
                self.queue.append(name)


def run_here(
    plan: Plan,
    request: Request,
    slots: Sequence[Slot],
    states: Mapping[str, State] | None = None,
    began: float | None = None,
    max_failures: int | None = None,
) -> Outcome:
    """Run what is missing on this machine, show progress, and print a line about it and what failed.

    `states` are those of the plan, when they have been read already; `began` is when the caller began to
    plan, if that counts, too.
    """
    began = time.monotonic() if began is None else began
    pool = Pool(slots, preload_for(plan))
    with Progress(plan.about(), len(slots), plan.noun) as progress:
        sweep = LocalSweep(plan, request, progress, pool, max_failures)
        outcome = sweep.run(states or plan.states(request))
    report(plan, outcome, progress, began)
    return outcome


def report(plan: Plan, outcome: Outcome, progress: Progress, began: float) -> None:
    """Print a line about what happened since `began`, and a table of what failed."""
    numbers = {**progress.counts, "on their way": progress.left}
    counts = ", ".join(f"{n} {what}" for what, n in numbers.items() if n)
    repeats = len(plan.asked) - len(plan.jobs)
    asked = f" ({len(plan.asked)} jobs, {repeats} of them repeats)" if repeats else ""
    spent = duration(time.monotonic() - began)
    print(f"{len(plan.jobs)} {plan.noun}{asked}: {counts}, in {spent}; {plan.store.root}", flush=True)
    if outcome.failures:
        about = plan.about()
        rows = [(n, label(about[n]), why, plan.store.folder(n).error) for n, why in outcome.failures.items()]
        print_failures(rows, plan.noun)
