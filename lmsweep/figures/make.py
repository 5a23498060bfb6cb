"""Make a figure from the store: collect, select, aggregate, check the claims, draw, write. Never trains."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.sweeps import Sweep, sweep_folder
from lmsweep.figures import collect
from lmsweep.figures.claims.verdicts import check_claims
from lmsweep.figures.collect import expected_cells
from lmsweep.figures.drawing.curves import draw_curves
from lmsweep.figures.drawing.distances import draw_distances
from lmsweep.figures.drawing.layout import save
from lmsweep.figures.drawing.methods import draw_methods
from lmsweep.figures.drawing.regions import draw_regions
from lmsweep.figures.evaluations import (
    Judge,
    Wanted,
    attack_configs,
    attacks,
    audits,
    curves,
    read_regions,
    regions,
    verdicts,
)
from lmsweep.figures.methods import methods_page
from lmsweep.figures.record import JudgedClaim, Record, build_record, write_record
from lmsweep.figures.spec import FigureSpec, parse_figure
from lmsweep.figures.stages import choose, pilot_runs, pilot_seeds, reporting_runs
from lmsweep.figures.table import aggregate, missing, ordered, write_csv
from lmsweep.files import write_atomically
from lmsweep.provenance import provenance
from lmsweep.store.store import Store


@dataclass(frozen=True)
class Made:
    """What was written, and the record of it."""

    picture: Path
    record: Record


def spec_of(sweep: Sweep) -> FigureSpec:
    """What the sweep's file says about its picture; published points only beside the paper's data."""
    spec = parse_figure(sweep.figure, sweep_folder() / f"{sweep.name}.yaml")
    return spec if sweep.grid.same_data else spec.model_copy(update={"references": []})


def measurements(sweep: Sweep) -> list[Wanted]:
    """What has to be measured of the finished runs that selection chooses: attacks, audits, regions."""
    spec, store = spec_of(sweep), Store(sweep.outputs)
    rows = _rows(sweep, spec, store)
    chosen, asked = _attacked(sweep, spec, rows, attack_configs_of(sweep, spec), store)
    points = collect.points_of(spec.panels, rows, {}, store, spec.checkpoint)
    points = choose(sweep, spec, points)
    return [*asked, *audits(sweep, spec, chosen), *regions(sweep, spec, points)]


@dataclass(frozen=True)
class Gathered:
    """What the store has for a figure: `points` of every setting, and those that were `chosen`."""

    spec: FigureSpec
    rows: pd.DataFrame
    configs: Mapping[str, EvaluationConfig]
    attacked: pd.DataFrame
    evaluations: list[str]
    points: pd.DataFrame
    chosen: pd.DataFrame


def gather(sweep: Sweep) -> Gathered:
    """Collect and select."""
    spec, store = spec_of(sweep), Store(sweep.outputs)
    rows = _rows(sweep, spec, store)
    configs = attack_configs_of(sweep, spec)
    attacked, asked = _attacked(sweep, spec, rows, configs, store)
    found, evaluations = curves(asked)
    points = collect.points_of(spec.panels, rows, found, store, spec.checkpoint)
    chosen = choose(sweep, spec, points)
    return Gathered(spec, rows, configs, attacked, evaluations, points, chosen)


def judged_claims(sweep: Sweep, gathered: Gathered) -> list[JudgedClaim]:
    """The verdicts on the figure's claims."""
    expected = _expected(sweep, gathered)
    same_data = sweep.grid.same_data
    return check_claims(
        gathered.spec, tested(gathered.chosen), sweep.label, same_data=same_data, expected=expected
    )


def tested(points: pd.DataFrame) -> pd.DataFrame:
    """The points on test data."""
    return points[points["split"] == "test"] if "split" in points else points


def make_figure(sweep: Sweep, judge: Judge) -> Made:
    """Write a figure below outputs/figures/<scale>/ as PNG, PDF, CSV and JSON; `judge` reads audits.

    Many methods side by side are a table in Markdown, too.
    """
    gathered = gather(sweep)
    spec, rows, shown = gathered.spec, gathered.rows, tested(gathered.chosen)
    table = _table(spec, gathered.chosen)
    gone = missing(shown, spec, _expected(sweep, gathered))
    record = build_record(
        spec,
        scale=sweep.label,
        command=sweep.command,
        provenance=provenance(),
        training=collect.training(Store(sweep.outputs), sorted(set(rows["run"]))),
        points=shown,
        table=table,
        trained=rows["run"].nunique(),
        pilot_seeds=pilot_seeds(sweep, spec),
        halving=sweep.grid.halving,
        missing=gone,
        evaluations=gathered.evaluations,
        claims=judged_claims(sweep, gathered),
        audit=verdicts(list(audits(sweep, spec, gathered.attacked)), judge),
    )
    figure = _draw(sweep, spec, table, shown, gone)
    path = sweep.drawn
    write_csv(table, path.with_name(f"{path.name}.csv"))
    write_record(record, path.with_name(f"{path.name}.json"))
    if spec.kind == "methods":
        write_atomically(path.with_name(f"{path.name}.md"), methods_page(table, spec, _where(sweep)))
    picture, _ = save(figure, path)
    return Made(picture, record)


def unfinished(sweep: Sweep) -> Figure:
    """The picture from what the store has now; writes nothing."""
    gathered = gather(sweep)
    shown = tested(gathered.chosen)
    gone = missing(shown, gathered.spec, _expected(sweep, gathered))
    return _draw(sweep, gathered.spec, _table(gathered.spec, gathered.chosen), shown, gone)


def _draw(
    sweep: Sweep, spec: FigureSpec, table: pd.DataFrame, points: pd.DataFrame, gone: list[dict[str, Any]]
) -> Figure:
    scale = _where(sweep)
    if spec.kind == "curves":
        return draw_curves(table, spec, scale, gone)
    if spec.kind == "methods":
        return draw_methods(table, spec, scale, gone)
    if spec.kind == "distances":
        layers = table.rename(columns={"panel": "layer", "x": "step"})
        return draw_distances(layers, spec.title, scale, methods=spec.methods)
    return draw_regions(read_regions(list(regions(sweep, spec, points))), spec.title, scale)


def _where(sweep: Sweep) -> str:
    return f"{sweep.scale} scale on {data_of(sweep)}"


def data_of(sweep: Sweep) -> str:
    """`mnist`, or `5% of mnist` when all runs train on the same part of it."""
    runs = sweep.runs.values()
    names = ", ".join(dict.fromkeys(config.data.name for config in runs))
    fractions = {config.data.fraction for config in runs}
    (fraction,) = fractions if len(fractions) == 1 else (1.0,)
    return names if fraction == 1 else f"{100 * fraction:.3g}% of {names}"


def attack_configs_of(sweep: Sweep, spec: FigureSpec) -> dict[str, EvaluationConfig]:
    """The evaluations behind the attack panels, without runs."""
    configs = attack_configs(spec, str(sweep.outputs), sweep.grid.evaluation)
    return {name: config.model_copy(update={"tracking": sweep.tracking}) for name, config in configs.items()}


def _rows(sweep: Sweep, spec: FigureSpec, store: Store) -> pd.DataFrame:
    runs = {**sweep.runs, **pilot_runs(sweep, spec)}
    return collect.run_rows(runs, store, collect.axes_of(spec), spec.methods)


def _expected(sweep: Sweep, gathered: Gathered) -> Iterator[dict[str, Any]]:
    # A cell without a number has the reason of runs that were to give it, or of those that were to choose.
    spec = gathered.spec
    pilots = pilot_runs(sweep, spec)
    runs = {**reporting_runs(sweep, spec), **pilots, **sweep.runs} if pilots else sweep.runs
    return expected_cells(replace(sweep, runs=runs), spec, gathered.configs)


def _attacked(
    sweep: Sweep,
    spec: FigureSpec,
    rows: pd.DataFrame,
    configs: Mapping[str, EvaluationConfig],
    store: Store,
) -> tuple[pd.DataFrame, list[Wanted]]:
    panels = [panel for panel in spec.panels if panel.attack is not None]
    points = collect.points_of(panels, rows, {}, store, spec.checkpoint)
    chosen = choose(sweep, spec, points)
    return chosen, list(attacks(spec, chosen, configs))


def _table(spec: FigureSpec, chosen: pd.DataFrame) -> pd.DataFrame:
    if spec.kind != "distances":
        return ordered(aggregate(chosen), spec)
    if chosen.empty:
        return aggregate(chosen).assign(split=[])
    parts = [
        ordered(aggregate(part), spec).assign(split=split)
        for split, part in chosen.groupby("split", sort=False)
    ]
    return pd.concat(parts, ignore_index=True)
