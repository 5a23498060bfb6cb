"""A W&B workspace for a sweep."""

from collections.abc import Sequence

import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from lmsweep.tracking.panels import Group
from lmsweep.tracking.wandb_run import STEP

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
