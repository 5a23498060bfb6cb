"""A W&B workspace of a figure's panels, and a report that tells the figure as a section of a paper does.

Every panel follows from the figure's axes, methods and runs. A test reads them with W&B's own models.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from lmsweep.config.sweeps import Sweep
from lmsweep.figures.claims import Claim
from lmsweep.figures.collect import DISTANCE_METRIC, SPLITS, Attacks, placed_runs, settings
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.evaluations import attack_configs
from lmsweep.figures.make import spec_of
from lmsweep.figures.pages.markdown import table
from lmsweep.figures.record import HEAD, ClaimRow, Record, claim_rows
from lmsweep.figures.select import SENTENCES
from lmsweep.figures.spec import FigureSpec, Panel
from lmsweep.figures.words import count, place
from lmsweep.tracking.tracker import ATTACK, FIGURE, TRAIN, attack_metric, attack_name, sweep_tag
from lmsweep.tracking.wandb_run import STEP

METHOD = "method_name"  # a key of the config of runs and attacks
CURVES = {"Training loss": "train_loss", "Validation accuracy": "val_accuracy", "Validation loss": "val_loss"}
# Panels by regular expression: which curves they show depends on the network's layers.
LAYERS = {"Margin loss of every layer": "margin/loss/.*", "Distance of every layer": "margin/distance/.*"}
MEAN: Mapping[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stderr"}
WORDS = {
    "holds": "holds",
    "fails": "does not hold",
    "not resolved": "is not resolved",
    "not run": "was not run",
}
JOBS = {TRAIN: "Runs", ATTACK: "Attacks", FIGURE: "Figures"}
PER_ROW, WIDTH, HEIGHT = 2, 12, 8  # a report's grid is 24 wide
COLUMNS = 3  # of panels in a workspace


@dataclass(frozen=True)
class Group:
    """Panels that belong together."""

    name: str
    about: str
    panels: list[Any]
    jobs: tuple[str, ...] = (TRAIN,)  # whose runs they show
    panel: str | None = None  # the figure's panel that they stand for


def build(sweep: Sweep, entity: str, project: str, record: Record | None) -> tuple[ws.Workspace, wr.Report]:
    """The workspace and the report of a sweep; `record` is the figure's JSON, None before it is drawn."""
    spec = spec_of(sweep)
    about: dict[str, Any] = {"entity": entity, "project": project}
    title, tag = f"{spec.title} ({sweep.label} scale)", sweep_tag(sweep.name, sweep.label)
    workspace = _workspace(tag, groups_of(sweep, spec), name=title, **about)
    blocks = _blocks(sweep, spec, tag, groups_of(sweep, spec), record)  # other panels, with a layout each
    report = wr.Report(title=title, description=spec.question, blocks=blocks, width="fluid", **about)
    return workspace, report


def groups_of(sweep: Sweep, spec: FigureSpec) -> list[Group]:
    """One group per pair of axes, and then what all figures have."""
    attacks = attack_configs(sweep, spec)
    groups = []
    for panel in spec.panels:
        jobs = (ATTACK if panel.attack else TRAIN,)
        panels = _panels(panel, attacks)
        groups.append(Group(panel.title, _axes(panel, sweep, attacks), panels, jobs, panel.name))
    if any(config.method.margin for config in sweep.runs.values()):
        groups.append(_gamma())
    return [*groups, _hyperparameters(sweep), _training(sweep), _pictures()]


def varying(sweep: Sweep) -> list[str]:
    """The keys that this sweep varies: axes and hyperparameters, but not the method or the seed."""
    return sorted({key for text in settings(sweep.runs, ()).values() for key in json.loads(text)})


def _axes(panel: Panel, sweep: Sweep, attacks: Attacks) -> str:
    """What is drawn, and how far it goes."""
    values = {x for _, _, xs in placed_runs(panel, sweep.runs, attacks) for x in xs} or {0.0}
    low, high = (place(x, panel.x.unit).removeprefix(" at ") for x in (min(values), max(values)))
    reach = f", from {low} to {high}" if low != high else ""
    return f"{panel.y.label.capitalize()} against {panel.x.label}{reach}, {len(panel.methods)} methods."


def _panels(panel: Panel, attacks: Attacks) -> list[Any]:
    log, metric = panel.x.scale == "log", panel.y.metric
    titles = {"title_x": panel.x.label, "title_y": panel.y.label}
    if panel.x.key == "step":
        layer = metric.removeprefix(DISTANCE_METRIC)
        return [
            _lines(f"{panel.title}, {name} samples", [f"distance/{split}/{layer}"], **titles)
            for split, name in SPLITS.items()
        ]
    if panel.attack is not None:
        config = attacks[panel.attack]
        transfer = config.source != "self"
        name = attack_name(config.attack.identity(transfer=transfer), transfer=transfer)
        metric = attack_metric(name, "accuracy")
        if panel.x.attack is not None:
            return [_lines(panel.title, [metric], attack_metric(name, "strength"), log_x=log, **titles)]
    return [
        _scatter(f"{panel.title}: every run", str(panel.x.key), metric, log=log),
        _bars(f"{panel.y.label} by method", metric),
        _bars(f"{panel.y.label} by cell", metric, by="cell"),
    ]


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
    axes: list[Any] = [wr.Config(key) for key in (METHOD, *varying(sweep))]
    axes += [wr.SummaryMetric("val_accuracy"), wr.SummaryMetric("test_accuracy")]
    columns = [wr.ParallelCoordinatesPlotColumn(axis) for axis in axes]
    panels = [
        wr.ParallelCoordinatesPlot(title="Every run of the sweep", columns=columns),
        wr.ParameterImportancePlot(with_respect_to="val_accuracy"),
    ]
    about = "Every key that this sweep varies beside its seeds, and the accuracies that came of it."
    return Group("Hyperparameters", about, panels)


def _training(sweep: Sweep) -> Group:
    panels = [_lines(title, [metric]) for title, metric in CURVES.items()]
    layers = LAYERS if any(run.method.margin for run in sweep.runs.values()) else {}
    if any(run.telemetry.every for run in sweep.runs.values()):
        layers = {**layers, "Distance to the boundary": "distance/.*"}
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


def _workspace(tag: str, groups: Sequence[Group], **about: Any) -> ws.Workspace:
    """Everything with the tag, by cell, in one section per group of panels."""
    sections = [
        ws.Section(
            name=group.name,
            panels=group.panels,
            is_open=True,
            layout_settings=ws.SectionLayoutSettings(columns=COLUMNS, rows=-(-len(group.panels) // COLUMNS)),
            panel_settings=ws.SectionPanelSettings(x_axis=STEP),
        )
        for group in groups
    ]
    return ws.Workspace(
        **about,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(ws.Tags().isin([tag])),
            groupby=[ws.Metric("Group")],
            order=[ws.Ordering(ws.Metric("Group"), ascending=True)],
        ),
    )


def _blocks(
    sweep: Sweep, spec: FigureSpec, tag: str, groups: Sequence[Group], record: Record | None
) -> list[Any]:
    """What the report is made of, from top to bottom."""
    blocks = [
        wr.P(_opening(sweep, spec)),
        wr.TableOfContents(),
        wr.H1("Experiment"),
        wr.P(_experiment(sweep, spec)),
        wr.P(f"{SENTENCES[spec.selection].rstrip('.')}."),
        wr.H1("Results"),
    ]
    for group in groups:
        blocks += [wr.H2(group.name), wr.P(group.about)]
        claims = [claim for claim in spec.claims if getattr(claim, "panel", None) == group.panel]
        if group.panel and claims:
            blocks.append(wr.UnorderedList([_statement(claim, record) for claim in claims]))
        for number, panel in enumerate(group.panels):
            row, column = divmod(number, PER_ROW)
            panel.layout = wr.Layout(x=column * WIDTH, y=row * HEIGHT, w=WIDTH, h=HEIGHT)
        blocks.append(wr.PanelGrid(runsets=[_runset(tag, job) for job in group.jobs], panels=group.panels))
    rows = [ClaimRow("not run", claim.says, claim.where, str(claim.paper), "", "") for claim in spec.claims]
    if record is not None:
        rows = claim_rows(record.claims)
    return [
        *blocks,
        wr.H1("What the paper says, and what these runs say"),
        wr.P(_verdict(spec, record)),
        wr.MarkdownBlock(table(HEAD, rows)),
        wr.H1("Make it again"),
        wr.MarkdownBlock(f"```\n{sweep.command}\n```"),
    ]


def _opening(sweep: Sweep, spec: FigureSpec) -> str:
    """The first paragraph: the question, and where the paper answers it."""
    if not spec.paper.startswith("Figure"):
        return f"{spec.question.strip()} Drawn from runs at {sweep.label} scale."
    return (
        f"{spec.question.strip()} {spec.paper} of “Large Margin Deep Networks for Classification” answers "
        f"with the curves that are drawn again below, from runs of our own at {sweep.label} scale."
    )


def _experiment(sweep: Sweep, spec: FigureSpec) -> str:
    """What was trained, in sentences."""
    configs = list(sweep.runs.values())
    data = _listed(dict.fromkeys(config.data.name for config in configs))
    models = _listed(dict.fromkeys(config.model.name for config in configs))
    seeds, cells = (len({getattr(config, key) for config in configs}) for key in ("seed", "cell"))
    methods = "; ".join(method_style(method).label for method in spec.methods)
    keys = varying(sweep)
    further = f"; beside the method and the seed it varies {_listed(keys)}" if keys else ""
    sentences = [
        f"Networks ({models}) are trained on {data} in {len(spec.methods)} ways: {methods}.",
        f"The sweep has {len(configs)} runs in {cells} cells, each with {count(seeds, 'seed')}{further}.",
    ]
    if spec.attacks:
        sentences.append(
            "Black-box examples are made on a cross-entropy network with another seed, so that no network is "
            "attacked by itself; white-box examples are made on the network that they are shown to."
        )
    if not sweep.grid.same_data:
        sentences.append(
            "The data are not the paper's, so its numbers are not compared, only its statements."
        )
    return " ".join(sentences)


def _verdict(spec: FigureSpec, record: Record | None) -> str:
    """How many of the paper's statements hold here."""
    statements = f"{len(spec.claims)} statements of the paper"
    if record is None:
        return f"{statements} are held against these runs; the figure has not been drawn yet."
    parts = [f"{number} {word}" for word, number in record.verdicts.items()]
    return f"Of {statements}, with {len(record.seeds)} seeds: {', '.join(parts)}."


def _statement(claim: Claim, record: Record | None) -> str:
    """A statement of the paper beside its curve, and what became of it."""
    found = next((c for c in record.claims if c.id == claim.id), None) if record else None
    here = f"Here it {WORDS[found.verdict]}: {found.ours}." if found else "Not looked at yet."
    return f"{claim.says.strip()} ({claim.where}: {claim.paper}.) {here}"


def _runset(tag: str, job: str) -> Any:
    """The runs with one job type: runs, attacks and figures have different metrics."""
    return wr.Runset(
        name=f"{JOBS[job]} of this sweep",
        filters=expr.And(expr.Tags().isin([tag]), expr.Metric("JobType") == job),
        groupby=["group"],
    )


def _listed(words: Iterable[str]) -> str:
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last
