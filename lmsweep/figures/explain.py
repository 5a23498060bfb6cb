"""How one number of a figure came about: the runs, why their setting was chosen, each seed, the verdicts."""

from collections.abc import Iterator

import pandas as pd

from lmsweep.config.sweeps import Sweep
from lmsweep.errors import UserError
from lmsweep.figures.evidence import methods_of
from lmsweep.figures.make import Gathered, gather
from lmsweep.figures.select import WEIGHTS, told
from lmsweep.figures.spec import Panel
from lmsweep.figures.statistics import RULE, Comparison, x_key
from lmsweep.figures.words import amount, count, place, with_interval


def explain(sweep: Sweep, method: str, x: float) -> Iterator[str]:
    """Lines about a method's number at x, in every panel that has it, and the claims that use the method."""
    gathered = gather(sweep)
    spec = gathered.spec
    if method not in spec.methods:
        known = ", ".join(spec.methods)
        raise UserError(f"{sweep.name} has no method {method}; it must be one of {known}.")
    panels = [panel for panel in spec.panels if method in panel.methods]
    here = [panel for panel in panels if len(_at(gathered.shown, panel, method, x))]
    if not here:
        mine = gathered.chosen[(gathered.chosen["method"] == method) & gathered.chosen["y"].notna()]
        known = ", ".join(f"{value:g}" for value in sorted(set(mine["x"]))) or "none: nothing was run"
        raise UserError(f"{sweep.name} has no number of {method} at {x:g}; it must be one of {known}.")
    for panel in here:
        yield from _number(gathered, panel, method, x)
    for claim, judged in zip(spec.claims, gathered.judged(), strict=True):
        if any(method in methods_of(side) for _, side in claim.uses()):
            yield f"claim {claim.id}, {judged.verdict}: {claim.says}"
            yield f"  ours: {judged.ours} (n = {judged.n})"


def _at(points: pd.DataFrame, panel: Panel, method: str, x: float) -> pd.DataFrame:
    mine = points[(points["panel"] == panel.name) & (points["method"] == method) & points["y"].notna()]
    return mine[[x_key(value) == x_key(x) for value in mine["x"]]].sort_values("seed")


def _number(gathered: Gathered, panel: Panel, method: str, x: float) -> Iterator[str]:
    spec, unit, pilots = gathered.spec, panel.y.unit, gathered.stages.pilot_seeds
    cells = _at(gathered.shown, panel, method, x)
    result = Comparison.of(method, cells["y"], x)
    yield f"{panel.title}: {method}{place(x, panel.x.unit)} is {with_interval(result, unit)}"
    yield f"  mean over {count(result.n, 'seed')}, 95% interval by {RULE}"
    yield f"  {WEIGHTS[panel.checkpoint or spec.checkpoint]}"
    for seed, y, val, run in zip(*(cells[key] for key in ("seed", "y", "val", "run")), strict=True):
        yield f"  seed {seed}: {amount(y, unit)}, validation {val:.2%}, run {run}"
    rivals = gathered.points[(gathered.points["panel"] == panel.name) & (gathered.points["method"] == method)]
    if panel.name not in spec.attack_panels:
        rivals = rivals[[x_key(value) == x_key(x) for value in rivals["x"]]]
    if pilots:  # only settings with rivals have pilot runs
        rivals = rivals[rivals["seed"].isin(pilots)]
    runs = rivals.drop_duplicates(["setting", "seed"])
    settings = runs.groupby("setting").agg(val=("val", "mean"), seeds=("seed", "nunique"))
    settings = settings.sort_values("val", ascending=False)
    yield f"  {' '.join(told(spec.selection, pilots))}"
    for setting, val, seeds in zip(settings.index, settings["val"], settings["seeds"], strict=True):
        mark = "chosen" if setting == cells["setting"].iloc[0] else "not chosen"
        yield f"  {mark}: {setting}, mean validation {val:.2%} of {count(int(seeds), 'seed')}"
