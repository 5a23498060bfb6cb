"""The runs of figures, in one stage or two: pilot runs choose the settings of the runs that report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lmsweep.commands.jobs import mirror_late, total_steps, training_job
from lmsweep.commands.rungs import rung_job
from lmsweep.config.run import Request, RunConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.errors import UserError
from lmsweep.figures.halving import RUNGS, Rung
from lmsweep.figures.make import spec_of
from lmsweep.figures.stages import finalists, pilot_runs, reporting_runs, rungs
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
    pilots = [finalists(sweep, spec_of(sweep), guess=True) for sweep in sweeps]
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
    everyone = _together(pilot_runs(sweep, spec_of(sweep)) for sweep in sweeps)
    if everyone:
        grid = _together(sweep.runs for sweep in sweeps)
        climbing = [_rungs(sweeps, number, guess=True) for number in range(RUNGS)]
        steps = total_steps(runs) + _paused_steps(climbing, set(first))
        if any(climbing):
            pausing = ", then ".join(str(len(rivals)) for rivals in climbing)
            print(f"Halving: {pausing} pilot runs pause and are compared; {len(first)} go on to their end.")
        print(
            f"Two stages: {len(everyone)} runs {_seeds(everyone)} choose the settings of "
            f"{len(runs) - len(first)} that report. {len(runs) - len(first) + len(everyone)} runs in place "
            f"of {len(grid)} spare {1 - steps / total_steps(grid):.0%} of the steps.",
            flush=True,
        )


def train(sweeps: Sequence[Sweep], launcher: LocalLauncher, request: Request) -> Stage | None:
    """Train the runs that figures report, after those that choose their settings.

    None while any of them is on its way.
    """
    pilots = [pilot_runs(sweep, spec_of(sweep)) for sweep in sweeps]
    if any(pilots):
        _record(sweeps, pilots, PILOT)
        for number in range(RUNGS + 1):  # without halving all come to the end at once
            stage = _compare(sweeps, number, launcher, request)
            if stage is None:
                return None
            if stage.broken and request.retry != "none":
                raise ReproductionError(
                    f"{len(stage.broken)} of {len(stage.runs)} pilot runs failed, so that no settings are "
                    "chosen yet; the same command trains them again, and retry=none chooses among the others."
                )
        everyone = _together(pilots)
        print(f"The runs {_seeds(everyone)} have chosen the settings; other seeds report.", flush=True)
    reports = [reporting_runs(sweep, spec_of(sweep)) for sweep in sweeps]
    _record(sweeps, reports)
    return _submit(_together(reports), launcher, request)


def _compare(sweeps: Sequence[Sweep], number: int, launcher: LocalLauncher, request: Request) -> Stage | None:
    """Train the pilot runs that are still rivals up to a rung, or after the last rung to their end."""
    if number == RUNGS:
        return _submit(_together(finalists(sweep, spec_of(sweep)) for sweep in sweeps), launcher, request)
    climbing = _rungs(sweeps, number)
    plan = Plan.of([rung_job(rung) for rung in climbing.values()])
    outcome = launcher.submit(plan, request) if climbing else Outcome()
    runs = {rung.run.id: rung.run for rung in climbing.values()}
    return None if on_their_way(plan, outcome) else Stage(runs, plan, outcome)


def _rungs(sweeps: Sequence[Sweep], number: int, *, guess: bool = False) -> dict[str, Rung]:
    found = [rung for sweep in sweeps for rung in rungs(sweep, spec_of(sweep), number, guess=guess)]
    return {rung.id: rung for rung in found}


def _paused_steps(climbing: Sequence[Mapping[str, Rung]], finished: set[str]) -> int:
    """The steps of pilot runs that pause and do not go on to their end."""
    reached = {rung.run.id: rung.step for rivals in climbing for rung in rivals.values()}
    return sum(step for run, step in reached.items() if run not in finished)


def on_their_way(plan: Plan, outcome: Outcome) -> bool:
    """Whether the launcher did not wait for the end of all jobs; says so."""
    left = len(plan.jobs) - len(outcome.results) - len(outcome.failures)
    if left:
        print(f"{left} {plan.noun} are on their way; the same command goes on with what comes next.")
    return left > 0


def _record(sweeps: Sequence[Sweep], asked: Sequence[Runs], suffix: str = "") -> None:
    for sweep, mine in zip(sweeps, asked, strict=True):
        if mine:
            record_sweep(sweep.outputs, mine, sweep.name, f"{sweep.label}{suffix}")


def _submit(runs: Runs, launcher: LocalLauncher, request: Request) -> Stage | None:
    plan = _plan(runs)
    if not runs:  # every setting of every cell diverged, or was decided on a rung
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
