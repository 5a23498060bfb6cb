"""Which hyperparameters a figure shows: named rules that look at validation accuracy, never at the result.

Points are rows of panel, method, x, place, seed, y, run, setting (the hyperparameters as JSON) and val (the
run's validation accuracy). The place is x, or 0 where the same runs stand at every x: all strengths of an
attack meet the same network. A rule returns some of these rows, unchanged.

With `grid.stages` of a scale or a sweep there are two stages: settings are compared on pilot seeds, and only
the chosen ones are trained on seeds that report. A cell with one setting needs no pilot run. What pilot seeds
reach is looked at by the choice alone: no mean, no interval and no evaluation contains them.

With `grid.halving: 3` pilot runs pause on rungs, at 1/9 and 1/3 of their steps, and a third of a cell's
settings goes on after each (successive halving, Jamieson and Talwalkar 2016).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import pandas as pd

from lmsweep.config.identity import run_id
from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.errors import ConfigError
from lmsweep.figures.collect import axes_of, names, placed_runs, points_of, run_rows, settings
from lmsweep.figures.spec import FigureSpec
from lmsweep.store.store import Store

SENTENCES = {
    "best_validation": (
        "Per method and x the hyperparameters with the highest mean validation accuracy over seeds, among "
        "those with the most finished seeds; under an attack one choice per method, by the accuracy on clean "
        "validation samples; ties go to the setting that sorts first."
    ),
    "all": "No selection: every method has one setting, and all its runs are shown.",
}
WEIGHTS = {
    "best": "Of each run the weights with the best validation accuracy.",
    "best_clean": "Of each run the weights with the best accuracy on validation images with clean labels.",
    "last": "Of each run the last weights.",
}
CELL = ["panel", "method", "place"]  # what a setting is chosen for
CHOICE = [*CELL, "setting"]
RUNGS = 2  # how often a pilot run pauses before its end

Runs = dict[str, RunConfig]


def told(rule: str, pilot_seeds: Sequence[int] = (), halving: int | None = None) -> list[str]:
    """Sentences about how settings are chosen, and about the seeds that chose, where other seeds report."""
    sentences = [SENTENCES[rule]]
    if pilot_seeds:
        seeds, are = ("Seeds", "are") if len(pilot_seeds) > 1 else ("Seed", "is")
        chose = f"{seeds} {', '.join(map(str, pilot_seeds))}"
        sentences.append(f"{chose} compared the settings and {are} in no mean.")
        if halving:
            sentences.append(f"By successive halving one of {halving} settings went on after each rung.")
    return sentences


def select(rule: str, points: pd.DataFrame) -> pd.DataFrame:
    """The points that a named rule keeps."""
    return best_validation(points) if rule == "best_validation" else every(points)


def best_validation(points: pd.DataFrame) -> pd.DataFrame:
    """The points of the best setting per panel, method and place.

    A setting that fewer seeds finished than another is not eligible: it may owe its mean to those that
    diverged.
    """
    return points.merge(ranked_settings(points).drop_duplicates(CELL), on=CHOICE)


def ranked_settings(points: pd.DataFrame) -> pd.DataFrame:
    """The eligible settings of each cell, the best of a cell before its others."""
    runs = points[points["val"].notna()].drop_duplicates([*CHOICE, "seed"])
    settings = runs.groupby(CHOICE, as_index=False).agg(seeds=("seed", "nunique"), val=("val", _mean))
    complete = settings[settings["seeds"] == settings.groupby(CELL)["seeds"].transform("max")]
    return complete.sort_values(["val", "setting"], ascending=[False, True])[CHOICE]


def every(points: pd.DataFrame) -> pd.DataFrame:
    """All points; ConfigError when a cell has several settings, of which a rule would have to choose."""
    counts = points.groupby(["panel", "method", "x"])["setting"].nunique()
    if (counts > 1).any():
        panel, method, x = counts.index[int(counts.to_numpy().argmax())]
        raise ConfigError(
            f"figure.selection=all is not allowed: {method} has {counts.max()} settings at x={x:g} of panel "
            f"{panel} and must have one; use best_validation, or take the others out of the grid."
        )
    return points.reset_index(drop=True)


def _mean(values: pd.Series) -> float:
    # Rounded once, so that equal settings tie in whatever order their seeds come.
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class Rung:
    """How far a pilot run is trained before it is compared with its rivals."""

    run: RunConfig
    number: int  # from 0
    factor: int  # what `grid.halving` says
    kind = "rung"  # what its job is called

    @property
    def step(self) -> int:
        """The validation that the run pauses after: the first after its share of the steps."""
        trainer = self.run.trainer
        share = -(-trainer.max_steps // self.factor ** (RUNGS - self.number))
        return min(trainer.max_steps, -(-share // trainer.val_every) * trainer.val_every)

    @property
    def frozen(self) -> dict[str, object]:
        """All that can change what is found on the rung."""
        return {"kind": self.kind, "targets": [self.run.id], "step": self.step}

    @property
    def id(self) -> str:
        """The hash of that."""
        return run_id(self.frozen)

    def scores(self) -> dict[str, float] | None:
        """What validation said on the rung; {} of a run that diverged before, None while nobody knows."""
        results = Store(self.run.outputs, "evaluations").folder(self.id).read_results()
        return None if results is None else results["scores"]


class Stages:
    """Which runs of a sweep choose the settings of a figure, and which report.

    Some methods take `guess`: any settings go on where nobody knows yet which are the best. So what there
    will be to train can be told in advance.
    """

    def __init__(self, sweep: Sweep, spec: FigureSpec) -> None:
        self.sweep, self.spec = sweep, spec

    @cached_property
    def pilot_seeds(self) -> tuple[int, ...]:
        """The seeds that choose and do not report; none where a sweep has one stage or nothing to choose."""
        stages = self.sweep.grid.stages
        if stages is None or self.spec.selection != "best_validation":
            return ()
        seeds, reporting = stages.pilot_seeds, sorted({run.seed for run in self.sweep.runs.values()})
        if set(seeds) & set(reporting):
            raise ConfigError(
                f"grid.stages.pilot_seeds={list(seeds)} is not allowed: it must have none of the seeds that "
                f"report ({', '.join(map(str, reporting))}); change it in the scale, or grid.stages=null."
            )
        return seeds

    @cached_property
    def pilot_runs(self) -> Runs:
        """The runs of stage one: every setting of the cells that have several, on the pilot seeds."""
        return self._pilots(after=0)

    def rungs(self, number: int, *, guess: bool = False) -> list[Rung]:
        """The pilot runs that are still rivals when they come to a rung, as the rungs before have it."""
        factor = self.sweep.grid.halving
        if factor is None:
            return []
        runs = self._pilots(number, guess).values()
        for run in runs:  # those that cannot pause
            wrong = None
            if run.trainer.processes > 1:
                wrong = f"trainer.devices={run.trainer.devices} and trainer.num_nodes={run.trainer.num_nodes}"
            elif run.acquisition.active:
                wrong = f"acquisition.score={run.acquisition.score}"
            if wrong:
                raise ConfigError(
                    f"grid.halving is not allowed with {wrong}: pilot runs that pause must train one network "
                    "in one process; use grid.halving=null."
                )
        return [Rung(run, number, factor) for run in runs]

    def finalists(self, *, guess: bool = False) -> Runs:
        """The pilot runs that are trained to their end: all, or those with rivals after the last rung."""
        return self._pilots(RUNGS, guess)

    def reporting_runs(self, *, guess: bool = False) -> Runs:
        """The runs of stage two: those with the settings that the pilot runs in the store choose.

        A sweep of one stage reports all its runs.
        """
        sweep, spec, grid = self.sweep, self.spec, self._grid
        if not self.pilot_runs:
            return dict(sweep.runs)
        store = Store(sweep.outputs)
        rows = run_rows({**sweep.runs, **self.pilot_runs}, store, axes_of(spec), spec.methods)
        chosen = self._choice(points_of(spec.panels, rows, {}, store, spec.checkpoint))
        if guess:
            chosen = pd.concat([chosen, grid[CHOICE]]).drop_duplicates(CELL)
        kept = set(grid.merge(chosen, on=CHOICE)["run"])
        shown = set(grid["run"])  # a run that no panel shows has no rival
        return {name: run for name, run in sweep.runs.items() if name in kept or name not in shown}

    def choose(self, points: pd.DataFrame) -> pd.DataFrame:
        """The points of the selected settings, without those of pilot seeds."""
        if not self.pilot_seeds:
            return select(self.spec.selection, points)
        return points[~points["seed"].isin(self.pilot_seeds)].merge(self._choice(points), on=CHOICE)

    @cached_property
    def _grid(self) -> pd.DataFrame:
        """Panel, method, place, setting and run of the whole grid, from configurations alone."""

        def rows() -> Iterator[tuple[str, str, float, str, str]]:
            for panel in self.spec.panels:
                for name, run, places in placed_runs(panel, self.sweep.runs):
                    for method, place in product(names(run, panel.methods), places):
                        yield panel.name, method, place, hyperparameters[name], name

        hyperparameters = settings(self.sweep.runs, axes_of(self.spec))
        return pd.DataFrame(rows(), columns=[*CHOICE, "run"])

    def _choice(self, points: pd.DataFrame) -> pd.DataFrame:
        """Panel, method, place and setting: the only setting of a cell, or the best on the pilot seeds."""
        grid, left = self._grid, self._rivals(RUNGS)
        pilots = points[points["seed"].isin(self.pilot_seeds)]
        best = ranked_settings(pilots.merge(left[CHOICE].drop_duplicates(), on=CHOICE))
        # A method with one setting has that everywhere, also at points of a run's curve, which no grid names.
        one = ["panel", "method", "setting"]
        lone = grid[grid.groupby(one[:2])["setting"].transform("nunique") == 1][one].drop_duplicates()
        choices = [left[_is_alone(left)], best, points.merge(lone, on=one)]
        return pd.concat([choice[CHOICE] for choice in choices]).drop_duplicates(CELL)

    def _rivals(self, number: int, guess: bool = False) -> pd.DataFrame:
        """The rows of the grid whose settings are left after the first `number` rungs."""
        grid, factor = self._grid, self.sweep.grid.halving
        if factor is None:
            return grid
        for rung in range(number):
            alone = _is_alone(grid)
            left = going_on(grid[~alone], self._scores(grid[~alone], rung, factor, guess=guess), factor)
            grid = pd.concat([grid[alone], left], ignore_index=True)
        return grid

    def _scores(self, grid: pd.DataFrame, number: int, factor: int, *, guess: bool) -> pd.DataFrame:
        """Panel, method, place, setting, seed and val of all that is known on a rung."""
        weights = {panel.name: panel.checkpoint or self.spec.checkpoint for panel in self.spec.panels}

        def rows() -> Iterator[tuple[object, ...]]:
            cells = grid.drop_duplicates(CHOICE)
            for row, seed in product(cells.to_dict("records"), self.pilot_seeds):
                run = self.sweep.runs[row["run"]].model_copy(update={"seed": seed})
                scores = Rung(run, number, factor).scores()
                val = 0.0 if scores is None and guess else (scores or {}).get(weights[row["panel"]])
                yield *(row[key] for key in CHOICE), seed, val

        return pd.DataFrame(rows(), columns=[*CHOICE, "seed", "val"]).astype({"val": float})

    def _pilots(self, after: int, guess: bool = False) -> Runs:
        """The settings that still have rivals after so many rungs, each on every pilot seed."""
        if not self.pilot_seeds:
            return {}
        grid = self._rivals(after, guess)
        runs = (self.sweep.runs[name] for name in dict.fromkeys(grid["run"][~_is_alone(grid)]))
        cells = {run.cell: run for run in runs}.values()
        pilots = [run.model_copy(update={"seed": seed}) for run in cells for seed in self.pilot_seeds]
        return {run.id: run for run in pilots}


def _is_alone(grid: pd.DataFrame) -> pd.Series:
    """Whether the setting of a row is the only one of its cell."""
    return grid.groupby(CELL)["setting"].transform("nunique") == 1


def scores_until(metrics: Path, step: int) -> dict[str, float]:
    """The validation accuracy of a run's first steps, by the weights that a figure may show."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    seen = [line for line in lines if line["step"] <= step and "val_accuracy" in line]
    if not seen:
        return {}
    clean = [line.get("val_clean_accuracy", line["val_accuracy"]) for line in seen]
    noisy = [line["val_accuracy"] for line in seen]
    return {"best": max(noisy), "best_clean": max(clean), "last": noisy[-1]}


def going_on(grid: pd.DataFrame, scores: pd.DataFrame, factor: int) -> pd.DataFrame:
    """The rows of the grid whose settings go on after a rung: of each cell with several, the best.

    `grid` has panel, method, place and setting; `scores` the same, seed and val.
    """
    ranked = ranked_settings(scores)
    rivals = ranked.groupby(CELL)["setting"].transform("size")
    kept = ranked[ranked.groupby(CELL).cumcount() < -(-rivals // factor)]
    # An empty column would be one of objects, which cannot be merged with numbers.
    return grid.merge(kept.astype({"place": float}), on=CHOICE)
