"""A W&B report that tells a figure as a section of a paper does, and a workspace with the same panels."""

from collections.abc import Sequence
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from lmsweep.config.sweeps import Sweep
from lmsweep.figures.claims.kinds import Claim
from lmsweep.figures.claims.verdicts import HEAD, ClaimRow, claim_rows
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.pages.markdown import table
from lmsweep.figures.record import Record
from lmsweep.figures.select import SENTENCES
from lmsweep.figures.spec import FigureSpec
from lmsweep.tracking.card import ATTACK, FIGURE, TRAIN
from lmsweep.tracking.panels import Group, varying
from lmsweep.tracking.wandb_run import STEP

WORDS = {
    "holds": "holds",
    "fails": "does not hold",
    "not resolved": "is not resolved",
    "not run": "was not run",
}
JOBS = {TRAIN: "Runs", ATTACK: "Attacks", FIGURE: "Figures"}
PER_ROW, WIDTH, HEIGHT = 2, 12, 8  # a report's grid is 24 wide


def build_report(
    sweep: Sweep,
    spec: FigureSpec,
    entity: str,
    project: str,
    tag: str,
    groups: Sequence[Group],
    record: Record | None,
) -> wr.Report:
    """The report; `record` is what the figure's JSON says, None when it has not been drawn yet."""
    blocks: list[Any] = [
        wr.P(opening(sweep, spec)),
        wr.TableOfContents(),
        wr.H1("Experiment"),
        wr.P(experiment(sweep, spec)),
        wr.P(f"{SENTENCES[spec.selection].rstrip('.')}."),
        wr.H1("Results"),
    ]
    for group in groups:
        blocks += [
            wr.H2(group.name),
            wr.P(group.about),
            *_statements(group, spec, record),
            wr.PanelGrid(runsets=[_runset(tag, job) for job in group.jobs], panels=_laid_out(group.panels)),
        ]
    blocks += [
        wr.H1("What the paper says, and what these runs say"),
        wr.P(verdict(spec, record)),
        wr.MarkdownBlock(claims_table(spec, record)),
        wr.H1("Make it again"),
        wr.MarkdownBlock(f"```\n{sweep.command}\n```"),
    ]
    return wr.Report(
        project=project,
        entity=entity,
        title=f"{spec.title} ({sweep.label} scale)",
        description=spec.question,
        blocks=blocks,
        width="fluid",
    )


def opening(sweep: Sweep, spec: FigureSpec) -> str:
    """The first paragraph: the question, and where the paper answers it."""
    if not spec.paper.startswith("Figure"):
        return f"{spec.question.strip()} Drawn from runs at {sweep.label} scale."
    return (
        f"{spec.question.strip()} {spec.paper} of “Large Margin Deep Networks for Classification” answers "
        f"with the curves that are drawn again below, from runs of our own at {sweep.label} scale."
    )


def experiment(sweep: Sweep, spec: FigureSpec) -> str:
    """What was trained, in sentences."""
    configs = list(sweep.runs.values())
    data = _listed(dict.fromkeys(config.data.name for config in configs))
    models = _listed(dict.fromkeys(config.model.name for config in configs))
    seeds, cells = (len({getattr(config, key) for config in configs}) for key in ("seed", "cell"))
    methods = "; ".join(method_style(method).label for method in spec.methods)
    keys = varying(sweep)
    sentences = [
        f"Networks ({models}) are trained on {data} in {len(spec.methods)} ways: {methods}.",
        f"The sweep has {len(configs)} runs in {cells} cells, each with {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}"
        + (f"; beside the method and the seed it varies {_listed(keys)}." if keys else "."),
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


def verdict(spec: FigureSpec, record: Record | None) -> str:
    """How many of the paper's statements hold here."""
    total = len(spec.claims)
    if record is None:
        return (
            f"{total} statements of the paper are held against these runs; the figure has not been drawn yet."
        )
    found = [claim.verdict for claim in record.claims]
    parts = [f"{found.count(word)} {word}" for word in dict.fromkeys(found)]
    return f"Of {total} statements of the paper, with {len(record.seeds)} seeds: {', '.join(parts)}."


def statement(claim: Claim, record: Record | None) -> str:
    """A statement of the paper beside its curve, and what became of it."""
    found = next((c for c in record.claims if c.id == claim.id), None) if record else None
    here = f"Here it {WORDS[found.verdict]}: {found.ours}." if found else "Not looked at yet."
    return f"{claim.says.strip()} ({claim.where}: {claim.paper}.) {here}"


def _statements(group: Group, spec: FigureSpec, record: Record | None) -> list[Any]:
    mine = [claim for claim in spec.claims if group.panel and getattr(claim, "panel", None) == group.panel]
    return [wr.UnorderedList([statement(claim, record) for claim in mine])] if mine else []


def claims_table(spec: FigureSpec, record: Record | None) -> str:
    """One row per statement, in Markdown."""
    if record is not None:
        return table(HEAD, claim_rows(record.claims))
    rows = [ClaimRow("not run", claim.says, claim.where, str(claim.paper), "", "") for claim in spec.claims]
    return table(HEAD, rows)


def _runset(tag: str, job: str) -> Any:
    """The runs with one job type: runs, attacks and figures have different metrics."""
    return wr.Runset(
        name=f"{JOBS[job]} of this sweep",
        filters=expr.And(expr.Tags().isin([tag]), expr.Metric("JobType") == job),
        groupby=["group"],
    )


def _laid_out(panels: Sequence[Any]) -> list[Any]:
    for number, panel in enumerate(panels):
        row, column = divmod(number, PER_ROW)
        panel.layout = wr.Layout(x=column * WIDTH, y=row * HEIGHT, w=WIDTH, h=HEIGHT)
    return list(panels)


def _listed(words: Any) -> str:
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else str(last)


COLUMNS = 3


def build_workspace(name: str, entity: str, project: str, tag: str, groups: Sequence[Group]) -> ws.Workspace:
    """Everything with the tag `tag`, by cell, in one section per group of panels."""
    sections = [
        ws.Section(
            name=group.name,
            panels=list(group.panels),
            is_open=True,
            layout_settings=ws.SectionLayoutSettings(columns=COLUMNS, rows=_rows(group)),
            panel_settings=ws.SectionPanelSettings(x_axis=STEP),
        )
        for group in groups
    ]
    return ws.Workspace(
        name=name,
        entity=entity,
        project=project,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(ws.Tags().isin([tag])),
            groupby=[ws.Metric("Group")],
            order=[ws.Ordering(ws.Metric("Group"), ascending=True)],
        ),
    )


def _rows(group: Group) -> int:
    return -(-len(group.panels) // COLUMNS)
