"""Which evaluations a figure asks for."""

import pandas as pd
import pytest

from lmsweep.errors import ConfigError
from lmsweep.evaluation.attack import evaluate
from lmsweep.evaluation.runs import find_run
from lmsweep.figures.evaluations import attack_configs, audit_requests, curves, missing_requests, requests
from lmsweep.figures.spec import parse_figure
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


def test_white_box_is_one_request_per_run_and_black_box_one_per_seed(runs, selected):  # noqa: F811
    outputs, ids = runs
    spec = figure()
    asked = list(requests(spec, selected, attack_configs(spec, str(outputs), FEW)))
    white = [request for request in asked if request.attack == "white"]
    assert sorted(request.targets for request in white) == sorted(
        (ids[name],) for name in ("xent0", "xent1", "xent2", "margin0")
    )
    black = {request.source: request.targets for request in asked if request.attack == "black"}
    # Each seed meets the examples of the next one, the last those of the first.
    assert {source: set(targets) for source, targets in black.items()} == {
        ids["xent1"]: {ids["xent0"], ids["margin0"]},
        ids["xent2"]: {ids["xent1"]},
        ids["xent0"]: {ids["xent2"]},
    }


def test_what_is_asked_for_is_what_is_measured_and_then_found(runs, selected):  # noqa: F811
    outputs, ids = runs
    spec = figure()
    asked = list(requests(spec, selected, attack_configs(spec, str(outputs), FEW)))
    configs = {ids[name]: find_run(str(outputs), ids[name]).config for name in ids if name != "other_data"}
    assert curves(asked, configs) == ({}, [])
    mine = [request for request in asked if ids["margin0"] in request.targets]
    assert missing_requests(mine, configs) == mine
    for request in mine:
        evaluate(request.config)
    assert missing_requests(mine, configs) == []
    found, evaluations = curves(mine, configs)
    assert found["white"][ids["margin0"]]["strengths"] == [0.0, 0.1]
    assert found["black"][ids["margin0"]]["source"] == ids["xent1"]
    assert set(found["black"]) == {ids["margin0"], ids["xent0"]}
    assert len(evaluations) == 3


def test_one_run_per_method_is_audited_when_asked_for(runs, selected):  # noqa: F811
    outputs, ids = runs
    assert list(audit_requests(figure(), selected, str(outputs), [])) == []
    asked = dict(audit_requests(figure(audit=True), selected, str(outputs), ["samples=50"]))
    assert {method: (config.runs, config.source) for method, config in asked.items()} == {
        "xent": ([ids["xent0"]], ids["xent1"]),
        "margin_linf_all": ([ids["margin0"]], ids["xent1"]),
    }
    assert asked["xent"].samples == 50


def test_a_strength_that_the_attack_does_not_have_is_refused():
    spec = figure()
    y = spec.panels[0].y.model_copy(update={"attack": "white", "at": 0.2})
    x = spec.panels[0].x.model_copy(update={"attack": None, "key": "margin.gamma"})
    panel = spec.panels[0].model_copy(update={"x": x, "y": y})
    with pytest.raises(ConfigError, match=r"y.at=0.2 of panel white .* strength of white \(0, 0.1\)"):
        attack_configs(spec.model_copy(update={"panels": [panel]}), "outputs", FEW)
