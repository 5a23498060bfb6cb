"""Which evaluations a figure asks for."""

import pandas as pd
import pytest

from lmsweep.config.sweeps import GridConfig, Sweep
from lmsweep.errors import ConfigError
from lmsweep.evaluation.jobs import evaluation_job
from lmsweep.evaluation.runs import find_run
from lmsweep.figures.evaluations import attack_configs, attacks, audits, curves
from lmsweep.figures.spec import parse_figure
from lmsweep.store.job import run_job
from tests.evaluation.conftest import runs  # noqa: F401 - a fixture

AXIS = {"label": "epsilon", "unit": "none", "scale": "linear"}
ACCURACY = {"metric": "accuracy", "label": "accuracy", "unit": "percent"}
FEW = ["samples=60", "attack.epsilons=[0,0.1]", "attack.alpha=0.05"]


def figure(*, audit=False):
    methods = ["xent", "margin_linf_all"]
    panels = [
        {"name": name, "title": name, "x": {"attack": name, **AXIS}, "y": ACCURACY, "methods": methods}
        for name in ("white", "black")
    ]
    return parse_figure(
        {
            "name": "f",
            "title": "F",
            "paper": "Figure 0",
            "question": "Which?",
            "kind": "curves",
            "selection": "best_validation",
            "panels": panels,
            "attacks": {
                "white": {"overrides": ["attack=ifgsm", "source=self"]},
                "black": {"overrides": ["attack=ifgsm", "source=xent"]},
            },
            "audit": audit,
        },
        "f.yaml",
    )


@pytest.fixture
def selected(runs):  # noqa: F811 - the fixture
    _, ids = runs
    rows = [
        {"panel": panel, "method": method, "seed": seed, "run": ids[name]}
        for panel in ("white", "black")
        for method, seed, name in (
            ("xent", 0, "xent0"),
            ("xent", 1, "xent1"),
            ("xent", 2, "xent2"),
            ("margin_linf_all", 0, "margin0"),
        )
    ]
    return pd.DataFrame(rows)


def sweep_of(runs, **grid):  # noqa: F811 - the fixture
    outputs, ids = runs
    stored = {ids["xent0"]: find_run(str(outputs), ids["xent0"]).config}
    return Sweep("f", "smoke", stored, {}, GridConfig(**{"evaluation": tuple(FEW), **grid}))


def test_white_box_is_one_request_per_run_and_black_box_one_per_seed(runs, selected):  # noqa: F811
    _, ids = runs
    spec = figure()
    asked = list(attacks(spec, selected, attack_configs(sweep_of(runs), spec)))
    white = [one.measurement for one in asked if one.name == "white"]
    assert sorted(one.targets for one in white) == sorted(
        (ids[name],) for name in ("xent0", "xent1", "xent2", "margin0")
    )
    assert {one.source for one in white} == {None}
    black = {one.measurement.source: one.measurement.targets for one in asked if one.name == "black"}
    # Each seed meets the examples of the next one, the last those of the first.
    assert {source: set(targets) for source, targets in black.items()} == {
        ids["xent1"]: {ids["xent0"], ids["margin0"]},
        ids["xent2"]: {ids["xent1"]},
        ids["xent0"]: {ids["xent2"]},
    }


def test_what_is_asked_for_is_what_is_measured_and_then_found(runs, selected):  # noqa: F811
    outputs, ids = runs
    spec = figure()
    asked = list(attacks(spec, selected, attack_configs(sweep_of(runs), spec)))
    assert curves(asked) == ({}, [])
    mine = [one for one in asked if ids["margin0"] in one.measurement.targets]
    assert len(mine) == 2
    for one in mine:
        stored = {name: find_run(str(outputs), name) for name in one.measurement.runs}
        run_job(evaluation_job(one.measurement, stored))
    found, evaluations = curves(asked)
    assert found["white"][ids["margin0"]]["strengths"] == [0.0, 0.1]
    assert found["black"][ids["margin0"]]["accuracy"] != found["white"][ids["margin0"]]["accuracy"]
    assert set(found["black"]) == {ids["margin0"], ids["xent0"]}
    assert evaluations == [one.measurement.id for one in mine]


def test_one_run_per_method_is_audited_when_asked_for(runs, selected):  # noqa: F811
    _, ids = runs
    sweep = sweep_of(runs, audit=("samples=50",))
    assert list(audits(sweep, figure(), selected)) == []
    asked = {one.name: one.measurement for one in audits(sweep, figure(audit=True), selected)}
    assert {method: (one.targets, one.source) for method, one in asked.items()} == {
        "xent": ((ids["xent0"],), ids["xent1"]),
        "margin_linf_all": ((ids["margin0"],), ids["xent1"]),
    }
    assert asked["xent"].config.samples == 50


def test_a_strength_that_the_attack_does_not_have_is_refused(runs):  # noqa: F811
    spec = figure()
    y = spec.panels[0].y.model_copy(update={"attack": "white", "at": 0.2})
    x = spec.panels[0].x.model_copy(update={"attack": None, "key": "margin.gamma"})
    panel = spec.panels[0].model_copy(update={"x": x, "y": y})
    with pytest.raises(ConfigError, match=r"y.at=0.2 of panel white .* strength of white \(0, 0.1\)"):
        attack_configs(sweep_of(runs), spec.model_copy(update={"panels": [panel]}))
