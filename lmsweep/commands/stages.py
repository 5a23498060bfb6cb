"""The runs of figures, in one stage or two: pilot runs choose the settings of the runs that report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lmsweep.commands.jobs import mirror_late, total_steps, training_job
from lmsweep.config.run import Request, RunConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.errors import UserError
from lmsweep.figures.make import spec_of
from lmsweep.figures.stages import pilot_runs, reporting_runs
from lmsweep.store.sweeps import PILOT, record_sweep
from lmsweep.sweep.launcher import LocalLauncher
from lmsweep.sweep.plan import Outcome, Plan

Runs = dict[str, RunConfig]


class ReproductionError(UserError):
    """Some jobs failed for reasons that another call may not meet."""


@dataclass(frozen=True)
class Stage:
    """Runs that were submitted together, and how they ended."""

    runs: Runs
    plan: Plan
    outcome: Outcome

    @property
    def broken(self) -> list[str]:
        """Failed runs that another call may train; a diverged run is a result."""
        return [
            name
            for name in self.outcome.failures
            if not self.plan.jobs[name].folder.read_status().get("final")
        ]


def announce(sweeps: Sequence[Sweep], launcher: LocalLauncher, request: Request) -> None:
    """Print what is to be trained for all figures, in which stages, and what sharing and stages spare."""
    pilots = [pilot_runs(sweep, spec_of(sweep)) for sweep in sweeps]
    reports = [reporting_runs(sweep, spec_of(sweep), guess=True) for sweep in sweeps]
    first, runs = _together(pilots), _together([*pilots, *reports])
    figures = {
        sweep.name: {**pilots_of, **report}
        for sweep, pilots_of, report in zip(sweeps, pilots, reports, strict=True)
    }
    print(launcher.describe(_plan(runs), request, figures), flush=True)
    if len(sweeps) > 1:
        asked = sum(map(len, reports))
        saved = asked - len(_together(reports))
        print(f"{len(sweeps)} figures ask for {asked} runs; sharing saves {saved} of them.", flush=True)
    if first:
        grid = _together(sweep.runs for sweep in sweeps)
        print(
            f"Two stages: {len(first)} runs {_seeds(first)} choose the settings of "
            f"{len(runs) - len(first)} that report. {len(runs)} runs in place of {len(grid)} spare "
            f"{1 - total_steps(runs) / total_steps(grid):.0%} of the steps.",
            flush=True,
        )


def train(sweeps: Sequence[Sweep], launcher: LocalLauncher, request: Request) -> Stage | None:
    """Train the runs that figures report, after those that choose their settings.

    None while any of them is on its way.
    """
    pilots = [pilot_runs(sweep, spec_of(sweep)) for sweep in sweeps]
    if any(pilots):
        stage = _submit(sweeps, pilots, launcher, request, PILOT)
        if stage is None:
            return None
        if stage.broken and request.retry != "none":
            raise ReproductionError(
                f"{len(stage.broken)} of {len(stage.runs)} pilot runs failed, so that no settings are chosen "
                "yet; the same command trains them again, and retry=none chooses among the others."
            )
        print(f"The runs {_seeds(stage.runs)} have chosen the settings; other seeds report.", flush=True)
    return _submit(sweeps, [reporting_runs(sweep, spec_of(sweep)) for sweep in sweeps], launcher, request)


def on_their_way(plan: Plan, outcome: Outcome) -> bool:
    """Whether the launcher did not wait for the end of all jobs; says so."""
    left = len(plan.jobs) - len(outcome.results) - len(outcome.failures)
    if left:
        print(f"{left} {plan.noun} are on their way; the same command goes on with what comes next.")
    return left > 0


def _submit(
    sweeps: Sequence[Sweep],
    asked: Sequence[Runs],
    launcher: LocalLauncher,
    request: Request,
    suffix: str = "",
) -> Stage | None:
    for sweep, mine in zip(sweeps, asked, strict=True):
        if mine:
            record_sweep(sweep.outputs, mine, sweep.name, f"{sweep.label}{suffix}")
    runs = _together(asked)
    plan = _plan(runs)
    if not runs:  # every setting of every cell diverged
        return Stage(runs, plan, Outcome())
    outcome = launcher.submit(plan, request)
    mirror_late(runs)
    return None if on_their_way(plan, outcome) else Stage(runs, plan, outcome)


def _plan(runs: Runs) -> Plan:
    return Plan.of([training_job(config) for config in runs.values()])


def _together(parts: Iterable[Mapping[str, RunConfig]]) -> Runs:
    return {name: config for runs in parts for name, config in runs.items()}


def _seeds(runs: Runs) -> str:
    seeds = sorted({run.seed for run in runs.values()})
    return f"on seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
