"""W&B panels of a figure: each follows from the figure's axes, methods and runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import wandb_workspaces.reports.v2 as wr

from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.figures.collect import DISTANCE_METRIC, SPLITS, places, settings
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
    groups = []
    for panel in spec.panels:
        job = ATTACK if panel.attack else TRAIN
        about = _axes(panel, sweep, attacks)
        groups.append(Group(panel.title, about, _panels(panel, attacks), (job,), panel.name))
    if any(config.method.margin for config in sweep.runs.values()):
        groups.append(_gamma())
    return [*groups, _hyperparameters(sweep), _training(sweep), _pictures()]


def varying(sweep: Sweep) -> list[str]:
    """The keys that this sweep varies: axes and hyperparameters, but not the method or the seed."""
    keys = {key for text in settings(sweep.runs, ()).values() for key in json.loads(text)}
    return sorted(keys)


def _axes(panel: Panel, sweep: Sweep, attacks: Mapping[str, EvaluationConfig]) -> str:
    """What is drawn, and how far it goes."""
    shown = [run for run in sweep.runs.values() if run.method_name() in panel.methods]
    values = {x for xs in places(panel, shown, attacks) for x in xs} or {0.0}
    low, high = (place(x, panel.x.unit).removeprefix(" at ") for x in (min(values), max(values)))
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
        _scatter(f"{panel.title}: every run", str(panel.x.key), metric, log=panel.x.scale == "log"),
        _bars(f"{panel.y.label} by method", metric),
        _bars(f"{panel.y.label} by cell", metric, by="cell"),
    ]


def _attack_curve(panel: Panel, config: EvaluationConfig) -> Any:
    name = _name(config)
    axes: dict[str, Any] = {"title_x": panel.x.label, "title_y": panel.y.label}
    axes["log_x"] = panel.x.scale == "log"
    return _lines(panel.title, [attack_metric(name, "accuracy")], attack_metric(name, "strength"), **axes)


def _name(config: EvaluationConfig) -> str:
    transfer = config.source != "self"
    return attack_name(config.attack.identity(transfer=transfer), transfer=transfer)


def _distance_curve(panel: Panel, split: str) -> Any:
    metric = f"distance/{split}/{panel.y.metric.removeprefix(DISTANCE_METRIC)}"
    axes = {"title_x": panel.x.label, "title_y": panel.y.label}
    return _lines(f"{panel.title}, {SPLITS[split]} samples", [metric], **axes)


def _lines(title: str, metrics: list[Any], x: str = STEP, **more: Any) -> Any:
    """One line per method: the mean over its runs."""
    return wr.LinePlot(title=title, x=x, y=metrics, groupby=wr.Config(METHOD), **MEAN, **more)


def _scatter(title: str, key: str, metric: str, *, log: bool) -> Any:
    x, y = wr.Config(key), wr.SummaryMetric(metric)
    return wr.ScatterPlot(title=title, x=x, y=y, log_x=log, running_ymean=True)


def _bars(title: str, metric: str, by: str = METHOD) -> Any:
    return wr.BarPlot(title=title, metrics=[metric], groupby=wr.Config(by), **MEAN)


def _gamma() -> Group:
    panels = [
        _scatter("validation accuracy against gamma", "margin.gamma", "val_accuracy", log=True),
        _scatter("test accuracy against gamma", "margin.gamma", "test_accuracy", log=True),
        _bars("validation accuracy by gamma", "val_accuracy", by="margin.gamma"),
    ]
    about = "How much depends on the distance that is asked for; runs without a margin have no gamma."
    return Group("Gamma sensitivity", about, panels)


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
    curves = {
        "Training loss": "train_loss",
        "Validation accuracy": "val_accuracy",
        "Validation loss": "val_loss",
    }
    panels = [_lines(title, [metric]) for title, metric in curves.items()]
    layers = dict(LAYERS) if margin else {}
    layers |= {"Distance to the boundary": "distance/.*"} if telemetry else {}
    panels += [_lines(title, [], metric_regex=regex) for title, regex in layers.items()]
    about = "What runs say while they train, the mean over the runs of a method."
    return Group("Training", about, [*panels, _bars("Seconds of training", "train_seconds")])


def _pictures() -> Group:
    panels = [
        wr.MediaBrowser(title="The figure as it is drawn from the store", media_keys=["figure"]),
        wr.MediaBrowser(title="Adversarial examples", media_keys=["adversarial_examples"], num_columns=4),
        wr.WeavePanelSummaryTable(table_name="claims"),
    ]
    about = "The figure, its verdicts, and what networks are fooled by."
    return Group("Pictures and claims", about, panels, (FIGURE, TRAIN))
