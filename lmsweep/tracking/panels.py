"""W&B panels of a figure: each follows from the figure's axes, methods and runs."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import wandb_workspaces.reports.v2 as wr

from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.identity import dotted
from lmsweep.config.sweeps import Sweep
from lmsweep.figures.collect import DISTANCE_METRIC, SPLITS, on_axis, settings
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.figures.words import place
from lmsweep.tracking.card import ATTACK, FIGURE, TRAIN, attack_metric, attack_name
from lmsweep.tracking.wandb_run import STEP

METHOD = "method_name"  # a key of the config of runs and attacks
# Panels by regular expression: which curves they show depends on the network's layers.
LAYERS = {"Margin loss of every layer": "margin/loss/.*", "Distance of every layer": "margin/distance/.*"}
MEAN: Mapping[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stderr"}


@dataclass(frozen=True)
class Group:
    """Panels that belong together."""

    name: str
    about: str
    panels: list[Any]
    jobs: tuple[str, ...] = (TRAIN,)  # whose runs they show
    panel: str | None = None  # the figure's panel that they stand for


def figure_groups(sweep: Sweep, spec: FigureSpec, attacks: Mapping[str, EvaluationConfig]) -> list[Group]:
    """One group per pair of axes, and then what all figures have."""
    groups = [
        Group(
            panel.title,
            _axes(panel, sweep, attacks),
            _panels(panel, attacks),
            (ATTACK if panel.attack else TRAIN,),
            panel.name,
        )
        for panel in spec.panels
    ]
    gamma = _gamma(sweep)
    return [*groups, *([gamma] if gamma else []), _hyperparameters(sweep), _training(sweep), _pictures()]


def varying(sweep: Sweep) -> list[str]:
    """The keys that this sweep varies: axes and hyperparameters, but not the method or the seed."""
    keys = {key for text in settings(sweep.runs, ()).values() for key in json.loads(text)}
    return sorted(keys)


def _axes(panel: Panel, sweep: Sweep, attacks: Mapping[str, EvaluationConfig]) -> str:
    """What is drawn, and how far it goes."""
    values: set[float] = set()
    if panel.x.attack is not None:
        values = set(attacks[panel.x.attack].attack.strengths)
    elif panel.x.key != "step":
        shown = [run for run in sweep.runs.values() if run.method_name() in panel.methods]
        places = on_axis(dotted(run.identity_dict()).get(str(panel.x.key), math.nan) for run in shown)
        values = {x for xs in places for x in xs}
    low, high = (
        (place(x, panel.x.unit).removeprefix(" at ") for x in (min(values), max(values)))
        if values
        else ("", "")
    )
    reach = f", from {low} to {high}" if low != high else ""
    return f"{panel.y.label.capitalize()} against {panel.x.label}{reach}, {len(panel.methods)} methods."


def _panels(panel: Panel, attacks: Mapping[str, EvaluationConfig]) -> list[Any]:
    if panel.x.attack is not None:
        return [_attack_curve(panel, attacks[panel.x.attack])]
    if panel.x.key == "step":
        return [_distance_curve(panel, split) for split in SPLITS]
    metric = panel.y.metric
    if panel.y.attack is not None:
        metric = attack_metric(_name(attacks[panel.y.attack]), "accuracy")
    return [
        wr.ScatterPlot(
            title=f"{panel.title}: every run",
            x=wr.Config(str(panel.x.key)),
            y=wr.SummaryMetric(metric),
            log_x=panel.x.scale == "log",
            running_ymean=True,
        ),
        wr.BarPlot(title=f"{panel.y.label} by method", metrics=[metric], groupby=wr.Config(METHOD), **MEAN),
        wr.BarPlot(title=f"{panel.y.label} by cell", metrics=[metric], groupby=wr.Config("cell"), **MEAN),
    ]


def _attack_curve(panel: Panel, config: EvaluationConfig) -> Any:
    name = _name(config)
    return wr.LinePlot(
        title=panel.title,
        x=attack_metric(name, "strength"),
        y=[attack_metric(name, "accuracy")],
        title_x=panel.x.label,
        title_y=panel.y.label,
        log_x=panel.x.scale == "log",
        groupby=wr.Config(METHOD),
        **MEAN,
    )


def _name(config: EvaluationConfig) -> str:
    transfer = config.source != "self"
    return attack_name(config.attack.identity(transfer=transfer), transfer=transfer)


def _distance_curve(panel: Panel, split: str) -> Any:
    place = panel.y.metric.removeprefix(DISTANCE_METRIC)
    return wr.LinePlot(
        title=f"{panel.title}, {SPLITS[split]} samples",
        x=STEP,
        y=[f"distance/{split}/{place}"],
        title_x=panel.x.label,
        title_y=panel.y.label,
        groupby=wr.Config(METHOD),
        **MEAN,
    )


def _gamma(sweep: Sweep) -> Group | None:
    if not any(config.method.margin for config in sweep.runs.values()):
        return None
    x = wr.Config("margin.gamma")
    panels = [
        wr.ScatterPlot(
            title=f"{what} against gamma", x=x, y=wr.SummaryMetric(metric), log_x=True, running_ymean=True
        )
        for metric, what in (("val_accuracy", "validation accuracy"), ("test_accuracy", "test accuracy"))
    ]
    bars = wr.BarPlot(title="validation accuracy by gamma", metrics=["val_accuracy"], groupby=x, **MEAN)
    about = "How much depends on the distance that is asked for; runs without a margin have no gamma."
    return Group("Gamma sensitivity", about, [*panels, bars])


def _hyperparameters(sweep: Sweep) -> Group:
    columns = [wr.ParallelCoordinatesPlotColumn(wr.Config(key)) for key in [METHOD, *varying(sweep)]]
    columns += [
        wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(metric))
        for metric in ("val_accuracy", "test_accuracy")
    ]
    panels = [
        wr.ParallelCoordinatesPlot(title="Every run of the sweep", columns=columns),
        wr.ParameterImportancePlot(with_respect_to="val_accuracy"),
    ]
    about = "Every key that this sweep varies beside its seeds, and the accuracies that came of it."
    return Group("Hyperparameters", about, panels)


def _training(sweep: Sweep) -> Group:
    margin = any(config.method.margin for config in sweep.runs.values())
    telemetry = any(config.telemetry.every for config in sweep.runs.values())
    wanted = {
        "Training loss": "train_loss",
        "Validation accuracy": "val_accuracy",
        "Validation loss": "val_loss",
    }
    common: dict[str, Any] = {"x": STEP, "groupby": wr.Config(METHOD), **MEAN}
    panels = [wr.LinePlot(title=title, y=[metric], **common) for title, metric in wanted.items()]
    layers = dict(LAYERS) if margin else {}
    layers |= {"Distance to the boundary": "distance/.*"} if telemetry else {}
    panels += [wr.LinePlot(title=title, metric_regex=regex, **common) for title, regex in layers.items()]
    bars = wr.BarPlot(
        title="Seconds of training", metrics=["train_seconds"], groupby=wr.Config(METHOD), **MEAN
    )
    return Group(
        "Training", "What runs say while they train, the mean over the runs of a method.", [*panels, bars]
    )


def _pictures() -> Group:
    panels = [
        wr.MediaBrowser(title="The figure as it is drawn from the store", media_keys=["figure"]),
        wr.MediaBrowser(title="Adversarial examples", media_keys=["adversarial_examples"], num_columns=4),
        wr.WeavePanelSummaryTable(table_name="claims"),
    ]
    return Group(
        "Pictures and claims",
        "The figure, its verdicts, and what networks are fooled by.",
        panels,
        (FIGURE, TRAIN),
    )
