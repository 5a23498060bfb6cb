"""Two stages: settings are compared on pilot seeds; only the chosen ones are trained on seeds that report.

`grid.stages` of a scale or a sweep asks for that. A cell with one setting needs no pilot run. What pilot
seeds reach is looked at by the choice alone: no mean, no interval and no evaluation contains them.
"""

from collections.abc import Iterator
from itertools import product

import pandas as pd

from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.errors import ConfigError
from lmsweep.figures.collect import axes_of, names, places, points_of, run_rows, runs_of, settings
from lmsweep.figures.select import CELL, best_settings, placed, select, with_settings
from lmsweep.figures.spec import FigureSpec
from lmsweep.store.store import Store

Runs = dict[str, RunConfig]


def pilot_seeds(sweep: Sweep, spec: FigureSpec) -> tuple[int, ...]:
    """The seeds that choose and do not report; none where a sweep has one stage or nothing to choose."""
    if sweep.grid.stages is None or spec.selection != "best_validation":
        return ()
    seeds, reporting = sweep.grid.stages.pilot_seeds, sorted({run.seed for run in sweep.runs.values()})
    if set(seeds) & set(reporting):
        raise ConfigError(
            f"grid.stages.pilot_seeds={list(seeds)} is not allowed: it must have none of the seeds that "
            f"report ({', '.join(map(str, reporting))}); change it in the scale, or grid.stages=null."
        )
    return seeds


def pilot_runs(sweep: Sweep, spec: FigureSpec) -> Runs:
    """The runs of stage one: every setting of the cells that have several, on the pilot seeds."""
    seeds = pilot_seeds(sweep, spec)
    if not seeds:
        return {}
    grid = _grid(sweep, spec)
    compared = grid[~_is_alone(grid)]["run"]
    cells = {run.cell: run for run in (sweep.runs[name] for name in dict.fromkeys(compared))}
    runs = [run.model_copy(update={"seed": seed}) for run in cells.values() for seed in seeds]
    return {run.id: run for run in runs}


def reporting_runs(sweep: Sweep, spec: FigureSpec, *, guess: bool = False) -> Runs:
    """The runs of stage two: those with the settings that the pilot runs in the store choose.

    `guess` takes any setting for cells without a choice, to say in advance how much there will be to train.
    A sweep of one stage reports all its runs.
    """
    pilots = pilot_runs(sweep, spec)
    if not pilots:
        return dict(sweep.runs)
    store, grid = Store(sweep.outputs), _grid(sweep, spec)
    rows = run_rows({**sweep.runs, **pilots}, store, axes_of(spec), spec.methods)
    chosen = _choice(sweep, spec, points_of(spec.panels, rows, {}, store, spec.checkpoint))
    if guess:
        chosen = pd.concat([chosen, grid[[*CELL, "setting"]]]).drop_duplicates(CELL)
    kept = set(grid.merge(chosen, on=[*CELL, "setting"])["run"])
    shown = set(grid["run"])  # a run that no panel shows has no rival
    return {name: run for name, run in sweep.runs.items() if name in kept or name not in shown}


def choose(sweep: Sweep, spec: FigureSpec, points: pd.DataFrame) -> pd.DataFrame:
    """The points of the selected settings, without those of pilot seeds."""
    seeds = pilot_seeds(sweep, spec)
    if not seeds:
        return select(spec.selection, points, spec.attack_panels)
    return with_settings(points[~points["seed"].isin(seeds)], _choice(sweep, spec, points), _one_place(spec))


def _choice(sweep: Sweep, spec: FigureSpec, points: pd.DataFrame) -> pd.DataFrame:
    """Panel, method, place and setting: the only setting of a cell, or the best on the pilot seeds."""
    grid = _grid(sweep, spec)
    best = best_settings(points[points["seed"].isin(pilot_seeds(sweep, spec))], _one_place(spec))
    alone = grid[_is_alone(grid)][[*CELL, "setting"]].drop_duplicates()
    # A method with one setting has it everywhere, also where the grid has no x: on the curve of a run.
    one = ["panel", "method", "setting"]
    lone = grid[grid.groupby(one[:2])["setting"].transform("nunique") == 1][one].drop_duplicates()
    curves = placed(points, _one_place(spec)).merge(lone, on=one)[[*CELL, "setting"]]
    return pd.concat([alone, best, curves]).drop_duplicates(CELL)


def _grid(sweep: Sweep, spec: FigureSpec) -> pd.DataFrame:
    """Panel, method, place, setting and run of the whole grid, from configurations alone."""

    def rows() -> Iterator[tuple[str, str, float, str, str]]:
        for panel in spec.panels:
            runs = runs_of(panel, sweep.runs)
            everywhere = panel.name in _one_place(spec)
            xs = [(0.0,)] * len(runs) if everywhere else places(panel, runs.values(), {})
            for (name, run), at in zip(runs.items(), xs, strict=True):
                for method, x in product(names(run, panel.methods), at):
                    yield panel.name, method, x, hyperparameters[name], name

    hyperparameters = settings(sweep.runs, axes_of(spec))
    return pd.DataFrame(rows(), columns=[*CELL, "setting", "run"])


def _is_alone(grid: pd.DataFrame) -> pd.Series:
    return grid.groupby(CELL)["setting"].transform("nunique") == 1


def _one_place(spec: FigureSpec) -> list[str]:
    """Panels whose x is no key of a run, so that a run stands at every x of the panel."""
    return [panel.name for panel in spec.panels if panel.x.key in (None, "step")]
