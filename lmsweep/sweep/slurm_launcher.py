"""`hydra/launcher=slurm`: the same sweep, as a job array on a cluster."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn

from lmsweep.config.request import Request
from lmsweep.errors import ConfigError
from lmsweep.sweep.estimate import describe
from lmsweep.sweep.launcher import LocalLauncher
from lmsweep.sweep.local import Outcome
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.progress import Progress
from lmsweep.sweep.run_plan import report
from lmsweep.sweep.slurm_options import SlurmOptions


class SlurmLauncher(LocalLauncher):
    """Submits what is missing as one job array, and follows it unless `wait` is false."""

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        self.options = SlurmOptions.parse(keys)

    def _launch_others(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        raise ConfigError("hydra/launcher=slurm runs lmsweep only; use hydra/launcher=local for other tasks.")

    def _describe(self, plan: Plan, request: Request) -> str:
        return describe(plan, request)  # how long it takes in all: how many jobs run at once, Slurm decides

    def _train(self, plan: Plan, request: Request) -> Outcome:
        from lmsweep.sweep.slurm_sweep import (
            SlurmSweep,
        )  # imports submitit, which other launchers do not need

        began = time.monotonic()
        at_once = self.options.array_parallelism * self.options.runs_per_job
        with Progress(plan.about(), min(at_once, len(plan.runs))) as progress:
            sweep = SlurmSweep(plan, request, self.options, progress)
            sweep.submit()
            for job in sweep.jobs:
                print(f"Submitted as Slurm job {job}.", file=sys.stderr, flush=True)
            if self.options.wait:
                try:
                    sweep.follow()
                except KeyboardInterrupt:
                    print("The jobs go on; scancel stops them.", file=sys.stderr, flush=True)
                    raise
        report(plan, sweep.outcome, progress, began)
        return sweep.outcome
