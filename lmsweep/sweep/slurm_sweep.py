"""Run a plan on a Slurm cluster: submit what is missing as one job array, and follow it."""

import io
import shutil
import time
from collections.abc import Sequence
from contextlib import redirect_stderr

from submitit import SlurmExecutor
from submitit.core.utils import FailedJobError, FailedSubmissionError

from lmsweep.config.request import Request
from lmsweep.errors import UserError
from lmsweep.files import locked
from lmsweep.sweep.local import Outcome
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.progress import Progress
from lmsweep.sweep.slurm_jobs import settle_jobs
from lmsweep.sweep.slurm_options import SlurmOptions, job_folder
from lmsweep.sweep.slurm_task import ArrayTask


class SlurmSweep:
    """The runs of a plan on their way through the queue; the store is the only thing it remembers."""

    def __init__(self, plan: Plan, request: Request, options: SlurmOptions, progress: Progress) -> None:
        self.plan = plan
        self.store = plan.store
        self.request = request
        self.options = options
        self.progress = progress
        self.outcome = Outcome()
        self.open: list[str] = []  # runs that somebody trains, or is going to
        self.jobs: list[str] = []  # of ours

    def submit(self) -> None:
        """Submit what is missing and not on its way already; nobody else submits to this store meanwhile."""
        folder = job_folder(self.plan.outputs)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            alive = settle_jobs(self.store, self.plan.runs)
            standings = self.plan.standings(self.request)
            self.open = [name for name, state in standings.items() if state == "missing"]
            force = self.request.force
            self._submit(self._nobodys(self.open, alive, force), force)
        for name, state in standings.items():
            if state == "cached":
                self.outcome.results[name] = self.store.run(name).read_results() or {}
                self.progress.cached(name)
            elif state == "failed":
                self._fail(name)

    def follow(self) -> None:
        """Look at the queue and the store until every run has an end."""
        while self.open:
            alive = settle_jobs(self.store, self.open)
            for name in list(self.open):
                self._look(name)
            # Those that a process outside Slurm had, and gave back.
            orphans = self._nobodys(self.open, alive)
            if orphans:
                with locked(job_folder(self.plan.outputs)):
                    self._submit(self._nobodys(orphans, settle_jobs(self.store, orphans)))
            if self.open:
                time.sleep(self.options.poll_seconds)

    def _nobodys(self, names: Sequence[str], alive: set[str], force: bool = False) -> list[str]:
        """Those of `names` that no job and no process has, and that are not done (with `force`: or are)."""
        found = []
        for name in names:
            folder = self.store.run(name)
            status = folder.read_status()
            done = status.get("state") == "done" and not force
            if name not in alive and not done and not folder.is_running(status):
                found.append(name)
        return found

    def _submit(self, names: Sequence[str], force: bool = False) -> None:
        if not names:
            return
        for name in names:
            config = self.plan.runs[name]
            self.store.submit(name, config.to_dict(), config.about(), force=force)
        size = self.options.runs_per_job
        parts = [names[first : first + size] for first in range(0, len(names), size)]
        tasks = [
            ArrayTask([self.plan.runs[name] for name in part], self.options.runs_per_gpu) for part in parts
        ]
        for job, part in zip(self._sbatch(tasks), parts, strict=True):
            for name in part:
                self.store.assign(name, job)

    def _sbatch(self, tasks: Sequence[ArrayTask]) -> list[str]:
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise UserError(
                "hydra/launcher=slurm needs sbatch and srun, which are not here; call it on a login node of "
                "a Slurm cluster, or use hydra/launcher=local."
            )
        folder = job_folder(self.plan.outputs).absolute()
        executor = SlurmExecutor(folder, max_num_timeout=self.options.requeues)
        executor.update_parameters(**self.options.parameters(), wckey=None)
        try:
            with redirect_stderr(io.StringIO()):  # submitit prints what it also raises
                jobs = [job.job_id for job in executor.submit_array(tasks)]
        except (FailedJobError, FailedSubmissionError) as error:
            reason = " ".join(str(error).split()) or "no reason given"
            raise UserError(
                f"Slurm refused an array of {len(tasks)} tasks ({reason}); "
                "change hydra.launcher, where a larger runs_per_job makes a smaller array."
            ) from None
        self.jobs.append(jobs[0].split("_")[0])
        return jobs

    def _look(self, name: str) -> None:
        """Tell the progress of a run, and take it from the list when it has an end."""
        status = self.store.run(name).read_status()
        state = status.get("state")
        if state in ("running", "done") and name not in self.progress.began:
            until = status.get("ended", time.time()) if state == "done" else time.time()
            self.progress.started(name, max(0.0, until - status.get("started", until)))
        if state == "done":
            results = self.store.run(name).read_results() or {}
            self.outcome.results[name] = results
            self.progress.done(name, results)
            self.open.remove(name)
        elif state == "failed":
            self._fail(name)
            self.open.remove(name)
        elif state == "pending" and name in self.progress.began:
            self.progress.stopped(name)

    def _fail(self, name: str) -> None:
        reason = str(self.store.run(name).read_status().get("reason", "it failed without a reason"))
        self.outcome.failures[name] = reason
        self.progress.failed(name, reason)
