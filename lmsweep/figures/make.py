"""Make a figure from the store: collect, select, aggregate, check the claims, draw, write. Never trains.

`explain` tells how one number of a figure came about: its runs, why their setting was chosen, each seed.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmsweep.config.sweeps import Sweep, sweep_folder
from lmsweep.errors import UserError
from lmsweep.figures import collect, evaluations, record
from lmsweep.figures.claims import Finding
from lmsweep.figures.drawing.curves import draw_curves, draw_distances, draw_regions
from lmsweep.figures.drawing.layout import save
from lmsweep.figures.drawing.methods import draw_methods, methods_page
from lmsweep.figures.record import JudgedClaim, Record
from lmsweep.figures.select import CELL, WEIGHTS, Stages, told
from lmsweep.figures.spec import FigureSpec, Panel, parse_figure
from lmsweep.figures.statistics import RULE, Cells, Comparison, Evidence, NotRunError, methods_of, x_key
from lmsweep.figures.words import amount, count, place, with_interval
from lmsweep.files import write_atomically
from lmsweep.provenance import provenance
from lmsweep.store.store import Store


def spec_of(sweep: Sweep) -> FigureSpec:
    """What the sweep's file says about its picture; published points only beside the paper's data."""
    spec = parse_figure(sweep.figure, sweep_folder() / f"{sweep.name}.yaml")
    return spec if sweep.grid.same_data else spec.model_copy(update={"references": []})


class Gathered:
    """What the store has for a figure: `points` of every setting, and those that were `chosen`."""

    def __init__(self, sweep: Sweep) -> None:
        """Collect and select."""
        self.sweep, self.spec, store = sweep, spec_of(sweep), Store(sweep.outputs)
        spec = self.spec
        self.stages = Stages(sweep, spec)
        runs = {**sweep.runs, **self.stages.pilot_runs}
        self.rows = collect.run_rows(runs, store, collect.axes_of(spec), spec.methods)
        under_attack = [panel for panel in spec.panels if panel.attack is not None]
        unmeasured = collect.points_of(under_attack, self.rows, {}, store, spec.checkpoint)
        self.attacked = self.stages.choose(unmeasured)
        self.configs = evaluations.attack_configs(sweep, spec)
        # What to measure of the chosen runs, in the store or not.
        self.attacks = list(evaluations.attacks(spec, self.attacked, self.configs))
        self.audits = list(evaluations.audits(sweep, spec, self.attacked))
        found, self.evaluations = evaluations.curves(self.attacks)
        self.points = collect.points_of(spec.panels, self.rows, found, store, spec.checkpoint)
        self.chosen = self.stages.choose(self.points)
        self.regions = list(evaluations.regions(sweep, spec, self.chosen))

    @property
    def shown(self) -> pd.DataFrame:
        """The chosen points on test data."""
        return self.chosen[self.chosen["split"] == "test"] if "split" in self.chosen else self.chosen

    @cached_property
    def expected(self) -> Cells:
        """Panel, method, x and reason of every cell: why it has no number, if it has none."""
        # The reason is that of a run that was to give the number, or of one that was to choose its setting.
        sweep, spec, pilots = self.sweep, self.spec, self.stages.pilot_runs
        runs = {**self.stages.reporting_runs(), **pilots, **sweep.runs} if pilots else sweep.runs
        return collect.expected_cells(replace(sweep, runs=runs), spec, self.configs)

    @cached_property
    def missing(self) -> Cells:
        """The expected cells without a number."""
        return record.missing(self.shown, self.spec, self.expected)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table of the figure: a row per panel, method and x."""
        if self.spec.kind != "distances":
            return record.ordered(record.aggregate(self.chosen), self.spec)
        if self.chosen.empty:
            return record.aggregate(self.chosen).assign(split=[])
        parts = self.chosen.groupby("split", sort=False)
        tables = [record.aggregate(part).assign(split=split) for split, part in parts]
        return pd.concat([record.ordered(table, self.spec) for table in tables], ignore_index=True)

    def judged(self) -> list[JudgedClaim]:
        """The verdicts on the figure's claims."""
        scale, same_data = self.sweep.label, self.sweep.grid.same_data
        return check_claims(self.spec, self.shown, scale, same_data=same_data, expected=self.expected)


def measurements(sweep: Sweep) -> list[evaluations.Wanted]:
    """What has to be measured of the finished runs that selection chooses: attacks, audits, regions."""
    found = Gathered(sweep)
    return [*found.attacks, *found.audits, *found.regions]


def check_claims(
    spec: FigureSpec, points: pd.DataFrame, scale: str, *, same_data: bool = True, expected: Cells = ()
) -> list[JudgedClaim]:
    """Judge every claim of a figure by its selected points.

    Where the data is not the paper's (`same_data` is false), its numbers mean nothing and are not compared.
    `expected` are the cells of the grid: no claim about a range holds while one of them is missing.
    """
    evidence, judged = Evidence(spec, points, expected), []
    for claim in spec.claims:
        try:
            if not same_data and claim.needs_the_papers_data:
                raise NotRunError(
                    f"the {scale} scale has other data than the paper; it takes the paper scale"
                )
            finding = claim.judge(evidence)
        except NotRunError as error:
            finding = Finding("not run", str(error), 0)
        about = {key: getattr(claim, key) for key in ("id", "says", "where", "kind")}
        about |= {"paper": claim.papers_number(evidence), "scale": scale}
        judged.append(JudgedClaim(**about, **finding._asdict()))
    return judged


def make_figure(sweep: Sweep, judge: evaluations.Judge) -> tuple[Path, Record]:
    """Write a figure below outputs/figures/<scale>/ as PNG, PDF, CSV and JSON; `judge` reads audits.

    Many methods side by side are a table in Markdown, too. Returns the picture's path and the record.
    """
    found = Gathered(sweep)
    spec, table = found.spec, found.table
    made = record.build_record(
        spec,
        found.shown,
        table,
        scale=sweep.label,
        command=sweep.command,
        provenance=provenance(),
        training=collect.training(Store(sweep.outputs), sorted(set(found.rows["run"]))),
        trained=found.rows["run"].nunique(),
        pilot_seeds=found.stages.pilot_seeds,
        halving=sweep.grid.halving,
        missing=found.missing,
        evaluations=sorted(set(found.evaluations)),
        claims=found.judged(),
        audit=evaluations.verdicts(found.audits, judge),
    )
    figure, path = draw(found), sweep.drawn
    record.write_csv(table, path.with_name(f"{path.name}.csv"))
    record.write_record(made, path.with_name(f"{path.name}.json"))
    if spec.kind == "methods":
        write_atomically(path.with_name(f"{path.name}.md"), methods_page(table, spec, _where(sweep)))
    picture, _ = save(figure, path)
    return picture, made


def draw(found: Gathered) -> Figure:
    """The picture from what the store has; writes nothing."""
    sweep, spec, table = found.sweep, found.spec, found.table
    scale = _where(sweep)
    if spec.kind == "curves":
        return draw_curves(table, spec, scale, found.missing)
    if spec.kind == "methods":
        return draw_methods(table, spec, scale, found.missing)
    if spec.kind == "distances":
        return draw_distances(table, spec, scale)
    return draw_regions(evaluations.read_regions(found.regions), spec.title, scale)


def _where(sweep: Sweep) -> str:
    return f"{sweep.scale} scale on {data_of(sweep)}"


def data_of(sweep: Sweep) -> str:
    """`mnist`, or `5% of mnist` when all runs train on the same part of it."""
    runs = sweep.runs.values()
    names = ", ".join(dict.fromkeys(config.data.name for config in runs))
    fractions = {config.data.fraction for config in runs}
    (fraction,) = fractions if len(fractions) == 1 else (1.0,)
    return names if fraction == 1 else f"{100 * fraction:.3g}% of {names}"


def explain(sweep: Sweep, method: str, x: float) -> Iterator[str]:
    """Lines about a method's number at x, in every panel that has it, and the claims that use the method."""
    gathered = Gathered(sweep)
    spec = gathered.spec
    if method not in spec.methods:
        known = ", ".join(spec.methods)
        raise UserError(f"{sweep.name} has no method {method}; it must be one of {known}.")
    mine = gathered.shown[(gathered.shown["method"] == method) & gathered.shown["y"].notna()]
    here = mine[mine["x"].map(x_key) == x_key(x)].sort_values("seed")
    if here.empty:
        known = ", ".join(f"{value:g}" for value in sorted(set(mine["x"]))) or "none: nothing was run"
        raise UserError(f"{sweep.name} has no number of {method} at {x:g}; it must be one of {known}.")
    for panel in spec.panels:
        cells = here[here["panel"] == panel.name]
        if len(cells):
            yield from _number(gathered, panel, method, x, cells)
    for claim, judged in zip(spec.claims, gathered.judged(), strict=True):
        if any(method in methods_of(side) for _, side in claim.uses()):
            yield f"claim {claim.id}, {judged.verdict}: {claim.says}"
            yield f"  ours: {judged.ours} (n = {judged.n})"


def _number(gathered: Gathered, panel: Panel, method: str, x: float, cells: pd.DataFrame) -> Iterator[str]:
    spec, unit, pilots = gathered.spec, panel.y.unit, gathered.stages.pilot_seeds
    result = Comparison.of(method, cells["y"], x)
    yield f"{panel.title}: {method}{place(x, panel.x.unit)} is {with_interval(result, unit)}"
    yield f"  mean over {count(result.n, 'seed')}, 95% interval by {RULE}"
    yield f"  {WEIGHTS[panel.checkpoint or spec.checkpoint]}"
    for seed, y, val, run in zip(*(cells[key] for key in ("seed", "y", "val", "run")), strict=True):
        yield f"  seed {seed}: {amount(y, unit)}, validation {val:.2%}, run {run}"
    rivals = gathered.points.merge(cells[CELL].drop_duplicates(), on=CELL)
    if pilots:  # only settings with rivals have pilot runs
        rivals = rivals[rivals["seed"].isin(pilots)]
    runs = rivals.drop_duplicates(["setting", "seed"])
    settings = runs.groupby("setting").agg(val=("val", "mean"), seeds=("seed", "nunique"))
    settings = settings.sort_values("val", ascending=False)
    yield f"  {' '.join(told(spec.selection, pilots))}"
    for setting, val, seeds in zip(settings.index, settings["val"], settings["seeds"], strict=True):
        mark = "chosen" if setting == cells["setting"].iloc[0] else "not chosen"
        yield f"  {mark}: {setting}, mean validation {val:.2%} of {count(int(seeds), 'seed')}"
