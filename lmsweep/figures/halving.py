"""Successive halving of pilot runs: they pause on rungs, and only the best of each cell go on from there.

With `grid.halving: 3` the rungs are at 1/9 and 1/3 of a run's steps, and a third of a cell's settings
goes on after each (Jamieson and Talwalkar 2016). A cell with one setting left has made its choice.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lmsweep.config.identity import run_id
from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError
from lmsweep.figures.select import CELL, ranked_settings
from lmsweep.store.store import Store

RUNGS = 2  # before the end of a run
KIND = "rung"


@dataclass(frozen=True)
class Rung:
    """How far a pilot run is trained before it is compared with its rivals."""

    run: RunConfig
    number: int  # from 0
    factor: int  # what `grid.halving` says

    @property
    def step(self) -> int:
        """The validation that the run pauses after: the first after its share of the steps."""
        trainer = self.run.trainer
        share = -(-trainer.max_steps // self.factor ** (RUNGS - self.number))
        return min(trainer.max_steps, -(-share // trainer.val_every) * trainer.val_every)

    @property
    def frozen(self) -> dict[str, object]:
        """All that can change what is found on the rung."""
        return {"kind": KIND, "targets": [self.run.id], "step": self.step}

    @property
    def id(self) -> str:
        """The hash of that."""
        return run_id(self.frozen)

    def scores(self) -> dict[str, float] | None:
        """What validation said on the rung; {} of a run that diverged before, None while nobody knows."""
        results = Store(self.run.outputs, "evaluations").folder(self.id).read_results()
        return None if results is None else results["scores"]


def scores_until(metrics: Path, step: int) -> dict[str, float]:
    """The validation accuracy of a run's first steps, by the weights that a figure may show."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    seen = [line for line in lines if line["step"] <= step and "val_accuracy" in line]
    if not seen:
        return {}
    clean = [line.get("val_clean_accuracy", line["val_accuracy"]) for line in seen]
    noisy = [line["val_accuracy"] for line in seen]
    return {"best": max(noisy), "best_clean": max(clean), "last": noisy[-1]}


def check_halving(run: RunConfig) -> None:
    """Raise ConfigError for a run that cannot pause."""
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


def going_on(grid: pd.DataFrame, scores: pd.DataFrame, factor: int) -> pd.DataFrame:
    """The rows of the grid whose settings go on after a rung: of each cell with several, the best.

    `grid` has panel, method, place and setting; `scores` the same, seed and val.
    """
    ranked = ranked_settings(scores)
    rivals = ranked.groupby(CELL)["setting"].transform("size")
    kept = ranked[ranked.groupby(CELL).cumcount() < -(-rivals // factor)]
    return grid.merge(kept.astype({"place": float}), on=[*CELL, "setting"])  # of nobody it is an object
