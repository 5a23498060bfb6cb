"""From the store to points: one row per run, panel and x; and the cells that the grid asks for."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.identity import dotted
from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.figures.statistics import Cells
from lmsweep.figures.words import text
from lmsweep.store.store import JobFolder, Store

COLUMNS = ["panel", "method", "x", "place", "seed", "y", "run", "setting", "val"]
# The seed, and the keys that a method's name tells: these are no hyperparameters.
NOT_A_HYPERPARAMETER = (
    *("seed", "method.criterion", "method.margin", "adversarial.kind"),
    *("margin.norm", "margin.layers", "margin.score", "margin.exact", "acquisition.score"),
)
ACQUIRED = "data.fraction"  # the x of the curve of a run that acquires its images in rounds
DISTANCE_METRIC = "test_distance_"  # how panels over training steps name a metric; the layer's name follows
SPLITS = {"train": "train", "val": "validation", "test": "test"}

Runs = Mapping[str, RunConfig]
Attacks = Mapping[str, EvaluationConfig]  # of a figure, by their names in its file
Curves = Mapping[str, Mapping[str, Any]]  # by attack and run, what evaluations found


def settings(runs: Runs, axes: Iterable[str]) -> dict[str, str]:
    """The hyperparameters of each run as JSON: the keys in which the runs differ, but for `axes`."""
    return _settings({name: dotted(config.identity_dict()) for name, config in runs.items()}, axes)


def _settings(identities: Mapping[str, Mapping[str, Any]], axes: Iterable[str]) -> dict[str, str]:
    fixed = (*NOT_A_HYPERPARAMETER, *axes)
    varying = [key for key in sorted(_varying(identities.values())) if not key.startswith(fixed)]
    return {
        name: json.dumps({key: keys[key] for key in varying if key in keys})
        for name, keys in identities.items()
    }


def _varying(runs: Iterable[Mapping[str, Any]]) -> set[str]:
    """The keys that have different values in two runs; 1 and 1.0 are different."""
    first: dict[str, Any] = {}
    found = set()
    for keys in runs:
        for key, value in keys.items():
            known = first.setdefault(key, value)
            # A sweep may have a million values, nearly all equal, and repr is ten times faster than json.
            if value is known or key in found or repr(value) == repr(known):
                continue
            if json.dumps(value) != json.dumps(known):
                found.add(key)
    return found


def names(config: RunConfig, methods: Iterable[str]) -> list[str]:
    """Those of `methods` that a run is a run of: its method, and variants whose values it has."""

    def has(pair: str) -> bool:
        key, _, value = pair.partition("=")
        found = dotted(config.to_dict()).get(key)
        return value == ("null" if found is None else text(found))

    mine = config.method_name()
    own = [method.split("@") for method in methods if method.partition("@")[0] == mine]
    return ["@".join(parts) for parts in own if all(map(has, parts[1:]))]


def runs_of(panel: Panel, runs: Runs) -> dict[str, RunConfig]:
    """Those runs that a panel shows: of its methods, where its `where` says."""

    def shown(run: RunConfig) -> bool:
        keys = dotted(run.identity_dict()) if panel.where else {}
        return bool(names(run, panel.methods)) and all(keys.get(k) == v for k, v in panel.where.items())

    return {name: run for name, run in runs.items() if shown(run)}


def run_rows(
    runs: Runs, store: Store, axes: Iterable[str], methods: Iterable[str] | None = None
) -> pd.DataFrame:
    """One row per finished run: id, method, seed, setting, axes and results.

    A run whose results are a curve along one of the axes has a row for each of its points.
    Where `methods` of the figure are given, a run has a row for each of them that it is a run of.
    """
    chosen = list(axes)
    identities = {name: dotted(config.identity_dict()) for name, config in runs.items()}
    hyperparameters = _settings(identities, chosen)
    rows = []
    for name, config in runs.items():
        results = store.folder(name).read_results()
        if results is None:
            continue
        keys = identities[name]
        mine = [config.method_name()] if methods is None else names(config, methods)
        points = results.get("curve", [results]) if ACQUIRED in chosen else [results]
        for point, method in product(points, mine):
            about = {"run": name, "method": method, "seed": config.seed, "setting": hyperparameters[name]}
            at = {key: point.get("at", {}).get(key, keys.get(key, math.nan)) for key in chosen}
            rows.append({**about, **at, "results": point})
    return pd.DataFrame(rows, columns=["run", "method", "seed", "setting", *chosen, "results"])


def metrics_of(results: Mapping[str, Any], checkpoint: str) -> dict[str, float]:
    """The metrics of a run's best, last, or by clean labels best weights; NaN where nobody measured them.

    Where no label is wrong, clean labels choose the same weights. They choose hyperparameters, too.
    """
    best = results["metrics"]
    kept = {"best": best, "best_clean": best, "last": {}, **results.get("selections", {})}
    found = dict.fromkeys(best, math.nan) | kept[checkpoint]
    clean = found.get("val_clean_accuracy", math.nan)
    if checkpoint == "best_clean" and not math.isnan(clean):
        found["val_accuracy"] = clean
    return found


def axes_of(spec: FigureSpec) -> list[str]:
    """The keys of runs that the figure's panels have on their x axis."""
    return list(dict.fromkeys(str(panel.x.key) for panel in spec.panels if not panel.one_place))


def points_of(
    panels: Iterable[Panel], rows: pd.DataFrame, curves: Curves, store: Store, checkpoint: str = "best"
) -> pd.DataFrame:
    """The points of panels; unless a panel names another one, metrics are those of this `checkpoint`.

    Points over training steps have the column `split` too. A run whose evaluation is missing gets one point
    without y, so that selection sees all settings.
    """
    points: list[dict[str, Any]] = []
    for panel in panels:
        # Where a run has a curve along the x of another panel, its last point is the run's result.
        point = ["run", "method", *({panel.x.key} & {*rows.columns})]
        shown = rows.drop_duplicates(point, keep="last")
        metrics = [metrics_of(results, panel.checkpoint or checkpoint) for results in shown["results"]]
        shown = shown.join(pd.DataFrame(metrics, index=shown.index))
        for key, value in panel.where.items():
            shown = shown[shown[key] == value]
        mine = shown[shown["method"].isin(panel.methods)].to_dict("records")
        measured = _measured(panel, mine, curves.get(panel.attack or "", {}), store)
        for row, places in zip(mine, measured, strict=True):
            about = {key: row[key] for key in ("method", "seed", "run", "setting")}
            about |= {"panel": panel.name, "val": row["val_accuracy"]}
            for x, y, more in places:
                place = 0.0 if panel.one_place else float(x)
                points.append({**about, "x": float(x), "place": place, "y": float(y), **more})
    split = ["split"] if any("split" in point for point in points) else []
    # An empty column would be one of objects, which cannot be merged with numbers.
    return pd.DataFrame(points, columns=[*COLUMNS, *split]).astype({"place": float})


def _measured(
    panel: Panel, rows: Sequence[Mapping[Any, Any]], curves: Mapping[str, Any], store: Store
) -> Iterator[Iterable[tuple[float, float, dict[str, str]]]]:
    """For each of the runs: x, y and, over training steps, the split of its points."""
    if panel.x.key == "step":
        for row in rows:
            yield list(_distances(panel, store.folder(row["run"])))
    elif panel.x.attack is not None:
        for row in rows:
            curve = curves.get(row["run"], {"strengths": [math.nan], "accuracy": [math.nan]})
            yield [(x, y, {}) for x, y in zip(curve["strengths"], curve["accuracy"], strict=True)]
    else:
        for row, xs in zip(rows, on_axis(row[panel.x.key] for row in rows), strict=True):
            curve = curves.get(row["run"])
            if panel.y.attack is None:
                y = row[panel.y.metric]
            else:
                y = curve["accuracy"][curve["strengths"].index(panel.y.at)] if curve else math.nan
            yield [(x, y, {}) for x in xs]


def _distances(panel: Panel, folder: JobFolder) -> Iterator[tuple[float, float, dict[str, str]]]:
    lines = [json.loads(line) for line in folder.read_file(folder.metrics).splitlines()]
    for split, name in SPLITS.items():
        key = f"distance/{split}/{panel.y.metric.removeprefix(DISTANCE_METRIC)}"
        yield from ((line["step"], line[key], {"split": name}) for line in lines if key in line)


def on_axis(values: Iterable[float]) -> list[list[float]]:
    """Where runs with these values of a key stand on its axis.

    A run that has no such key (nan: cross-entropy has no gamma) stands wherever another does: a level line.
    """
    given = [float(value) for value in values]
    every = sorted({value for value in given if not math.isnan(value)})
    return [every if math.isnan(value) else [value] for value in given]


def expected_cells(sweep: Sweep, spec: FigureSpec, attacks: Attacks) -> Cells:
    """Every cell of the grid; one with several runs is there once, with the reason of one of them."""
    cells: dict[tuple[str, str, float], dict[str, Any]] = {}
    curves = _curves(sweep) if ACQUIRED in axes_of(spec) else {}
    pilots = sweep.grid.stages.pilot_seeds if sweep.grid.stages else ()
    for panel in spec.panels:
        for name, run, xs in placed_runs(panel, sweep.runs, attacks):
            status = Store(sweep.outputs).folder(name).read_status()
            state, reason = status.get("state"), "not trained"
            if state in ("failed", "damaged"):
                reason = f"{state}: {status['reason']}"
            if panel.attack and state == "done" and run.seed not in pilots:
                reason = "not evaluated"
            if run.acquisition.active and panel.x.key == ACQUIRED:
                xs = curves.get(run.cell, xs)
            for method, x in product(names(run, panel.methods), xs):
                about = {"panel": panel.name, "method": method, "x": x, "reason": reason}
                cells.setdefault((panel.name, method, x), about)
    return list(cells.values())


def _curves(sweep: Sweep) -> dict[str, list[float]]:
    """By cell where the points of its acquisitions are, as far as one of its seeds is finished."""
    found = {}
    for name, run in sweep.runs.items():
        results = Store(sweep.outputs).folder(name).read_results() if run.acquisition.active else None
        if results is not None:
            found[run.cell] = [point["at"][ACQUIRED] for point in results["curve"]]
    return found


def placed_runs(
    panel: Panel, runs: Runs, attacks: Attacks | None = None
) -> Iterator[tuple[str, RunConfig, Sequence[float]]]:
    """The runs that a panel shows, each with its name and where on the x axis the run stands.

    Without `attacks`, a run of a panel whose x is no key of runs is at 0.
    """
    shown, key = runs_of(panel, runs), panel.x.key
    places: Iterable[Sequence[float]]
    if panel.one_place and attacks is None:
        places = [(0.0,)] * len(shown)
    elif panel.x.attack is not None and attacks is not None:
        places = [attacks[panel.x.attack].attack.strengths] * len(shown)
    elif key == "step":
        places = [(float(run.trainer.max_steps),) for run in shown.values()]
    else:
        # A configuration does not say from how many images a run chooses, and so not where its points are.
        places = on_axis(
            math.nan
            if run.acquisition.active and key == ACQUIRED
            else dotted(run.identity_dict()).get(str(key), math.nan)
            for run in shown.values()
        )
    for (name, run), xs in zip(shown.items(), places, strict=True):
        yield name, run, xs


def training(store: Store, runs: Iterable[str]) -> dict[str, Any]:
    """What runs took together and at most, and the machines that they say they ran on."""
    found = [results for run in runs if (results := store.folder(run).read_results())]
    seconds = [float(results["seconds"]) for results in found]
    joules: list[Any] = [results.get("energy_joules") for results in found]
    machines = {json.dumps(results.get("provenance", {}).get("machine"), sort_keys=True) for results in found}
    remarks = Counter(remark for results in found for remark in results.get("remarks", ()))
    return {
        "remarks": [f"{count} of {len(found)} runs: {remark}" for remark, count in remarks.most_common()],
        "seconds": round(math.fsum(seconds), 1),
        "longest": round(max(seconds, default=0.0), 1),
        "energy_joules": None if None in joules else round(sum(joules, 0.0)),
        "machines": [json.loads(machine) for machine in sorted(machines - {"null"})],
    }
