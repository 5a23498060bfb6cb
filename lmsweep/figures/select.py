"""Which hyperparameters a figure shows: named rules that look at validation accuracy, never at the result.

Points are rows of panel, method, x, seed, y, run, setting (the hyperparameters as JSON) and val (the run's
validation accuracy). A rule returns some of these rows, unchanged.
"""

import math
from collections.abc import Collection, Sequence

import pandas as pd

from lmsweep.errors import ConfigError

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
CELL = ["panel", "method", "place"]  # what a setting is chosen for; in attack panels, place is 0


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


def select(rule: str, points: pd.DataFrame, attack_panels: Collection[str] = ()) -> pd.DataFrame:
    """The points that a named rule keeps."""
    return best_validation(points, attack_panels) if rule == "best_validation" else every(points)


def best_validation(points: pd.DataFrame, attack_panels: Collection[str] = ()) -> pd.DataFrame:
    """The points of the best setting per panel, method and x; in attack panels per panel and method.

    A setting that fewer seeds finished than another is not eligible: it may owe its mean to those that
    diverged.
    """
    return with_settings(points, best_settings(points, attack_panels), attack_panels)


def best_settings(points: pd.DataFrame, attack_panels: Collection[str]) -> pd.DataFrame:
    """The best setting of each cell: a row of panel, method, place and setting."""
    return ranked_settings(placed(points, attack_panels)).drop_duplicates(CELL)


def ranked_settings(placed: pd.DataFrame) -> pd.DataFrame:
    """The eligible settings of each cell, the best of a cell before its others."""
    runs = placed[placed["val"].notna()].drop_duplicates([*CELL, "setting", "seed"])
    settings = runs.groupby([*CELL, "setting"], as_index=False).agg(
        seeds=("seed", "nunique"), val=("val", _mean)
    )
    complete = settings[settings["seeds"] == settings.groupby(CELL)["seeds"].transform("max")]
    return complete.sort_values(["val", "setting"], ascending=[False, True])[[*CELL, "setting"]]


def with_settings(
    points: pd.DataFrame, settings: pd.DataFrame, attack_panels: Collection[str]
) -> pd.DataFrame:
    """The points that have the setting, or one of the settings, of their cell."""
    kept = placed(points, attack_panels).merge(settings, on=[*CELL, "setting"], how="inner")
    return kept.drop(columns="place").reset_index(drop=True)


def placed(points: pd.DataFrame, attack_panels: Collection[str]) -> pd.DataFrame:
    """The points with their `place`: all strengths of an attack meet the same network, so there it is 0."""
    place = points["x"].where(~points["panel"].isin(list(attack_panels)), 0.0)
    return points.assign(place=place.astype(float))  # an empty column is none of numbers


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
