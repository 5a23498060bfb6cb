"""Dashboards of all figures by W&B's own models, without a network, and three of them word for word.

`python -m tests.tracking.test_dashboard` writes the expected ones anew.
"""

import json
import socket
from functools import cache
from pathlib import Path

import pytest
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.reports.v2.internal as report_models
import wandb_workspaces.workspaces as ws
import wandb_workspaces.workspaces.internal as workspace_models

from lmsweep.commands.wandb import dashboard_command, save, specification
from lmsweep.config.sweeps import read_sweep, sweep_names
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.make import spec_of
from lmsweep.figures.record import Record
from lmsweep.tracking.dashboard import build
from tests.figures.drawn import claim as judged_claim
from tests.figures.drawn import record as drawn_record
from tests.tracking.wandb_server import wandb_server

EXPECTED = Path(__file__).parent / "dashboards"
COMMITTED = ("fig2_mnist_noise", "fig9_mnist_fgsm", "fig12_cifar_distance")


@cache
def sweep_of(name, *overrides):
    return read_sweep(name, "smoke", overrides)


def dashboard(name, record=None):
    return build(sweep_of(name), "team", "lmsweep", record)


@pytest.fixture(autouse=True)
def _no_network(request, monkeypatch):
    if "server" in request.node.name:
        return

    def connect(*arguments):
        raise AssertionError("a specification needs no network")

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.mark.parametrize("name", sweep_names())
def test_every_figure_has_a_workspace_and_a_report_that_wandb_can_read(name):
    # The figure is the same with one method's runs, and Hydra composes them ten times faster.
    sweep = sweep_of(name, "method=margin", "margin.norm=2")
    built = build(sweep, "team", "lmsweep", None)
    spec, written = spec_of(sweep), json.loads(json.dumps(specification(*built)))
    workspace = ws.Workspace._from_model(workspace_models.View.model_validate(written["workspace"]))
    report = wr.Report._from_model(report_models.ReportViewspec.model_validate(written["report"]))
    sections = {section.name: section.panels for section in workspace.sections}
    assert [panel.title for panel in spec.panels] == list(sections)[: len(spec.panels)]
    assert workspace.runset_settings.groupby == [ws.Metric("Group")]
    assert all(panels for panels in sections.values())
    assert len(sections["Hyperparameters"][0].columns) >= 3
    assert "Gamma sensitivity" in sections
    headings = [block.text for block in report.blocks if isinstance(block, wr.H2)]
    assert headings == list(sections)
    text = json.dumps(written["report"], ensure_ascii=False)
    assert all(method_style(method).label in text for method in spec.methods)
    assert all(json.dumps(claim.says.strip(), ensure_ascii=False)[1:-1] in text for claim in spec.claims)
    # What is asked of W&B is what runs and attacks of this sweep are tagged with, and nothing else.
    tag = f"{name}-{sweep.label}"
    filters = json.dumps(written["workspace"]["spec"]["section"]["runSets"])
    assert tag in text
    assert tag in filters


@pytest.mark.parametrize("name", COMMITTED)
def test_a_dashboard_is_as_committed(name):
    assert specification(*dashboard(name)) == json.loads((EXPECTED / f"{name}.json").read_text())


def test_a_dry_run_prints_the_specification(capsys, tmp_path):
    name = COMMITTED[-1]
    dashboard_command(["--sweep", name, "--dry-run", "--entity", "team", "--outputs", str(tmp_path)])
    assert json.loads(capsys.readouterr().out) == json.loads((EXPECTED / f"{name}.json").read_text())


def test_verdicts_of_a_drawn_figure_are_told_beside_its_curves():
    name = "fig12_cifar_distance"
    ids = [claim.id for claim in spec_of(sweep_of(name)).claims]
    claims = [judged_claim(claim, "holds", ours="+1.5% at 80%") for claim in ids]
    drawn = Record.model_validate(drawn_record(name, claims=claims, seeds=[0, 1, 2]))
    written = specification(*dashboard(name, drawn))
    text = json.dumps(written["report"])
    assert f"Of {len(claims)} statements of the paper, with 3 seeds: {len(claims)} holds." in text
    assert "Here it holds: +1.5% at 80%." in text


def test_without_margins_there_is_no_gamma_to_look_at():
    workspace, _ = build(sweep_of("fig12_cifar_distance", "method=xent"), "team", "lmsweep", None)
    assert "Gamma sensitivity" not in [section.name for section in workspace.sections]


def test_a_sweep_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        dashboard_command(["--sweep", "fig99", "--dry-run"])
    assert stopped.value.code == 2
    assert "figure=fig99 is not allowed: it must be one of fig1_toy," in capsys.readouterr().err


def test_saving_again_takes_the_place_of_what_the_server_has(monkeypatch, tmp_path):
    with wandb_server() as server:
        for key, value in server.environment().items():
            monkeypatch.setenv(key, value)
        for _ in range(2):
            places = save(*dashboard("fig12_cifar_distance"), "lmsweep/fig12", tmp_path)
        assert len(server.views) == 2
    assert all(place.startswith(server.url) for place in places)
    titles = {view["displayName"] for view in server.views.values()}
    assert titles == {"CIFAR-10, distance to the boundary during training (smoke scale)"}


if __name__ == "__main__":
    EXPECTED.mkdir(exist_ok=True)
    for figure in COMMITTED:
        content = specification(*dashboard(figure))
        (EXPECTED / f"{figure}.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
