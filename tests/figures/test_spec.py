"""What a figure's file may say, and the sentence for everything else."""

import pytest

from lmsweep.errors import ConfigError
from lmsweep.figures.spec import parse_figure
from tests.figures.examples import ACCURACY, FIGURE, GREATER, METHODS, NOISE, VALUE, config, figure

FILE = "sweeps/fig2_test.yaml"
PANEL, WHITE = FIGURE["panels"]
REFERENCE = FIGURE["references"][0]


def sentence(**changes) -> str:
    with pytest.raises(ConfigError) as error:
        parse_figure(config(**changes), FILE)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert FILE in text
    return text


def test_a_whole_figure_is_read():
    spec = figure(GREATER)
    assert spec.attack_panels == ("white",)
    assert spec.methods == METHODS
    assert spec.panel("noise").x.scale == "linear"
    assert spec.claims[0].kind == "greater"


def test_regions_need_no_panels():
    assert parse_figure(config(kind="regions", panels=[], references=[]), FILE).panels == []


WRONG = {
    "value of the figure": ({"kind": "bars"}, "kind=bars", "curves, methods, regions or distances"),
    "rule": ({"selection": "best_test"}, "selection=best_test", "best_validation or all"),
    "weights": ({"checkpoint": "best_test"}, "checkpoint=best_test", "best, best_clean or last"),
    "weights that no file has": ({"checkpoint": "best_clean"}, "checkpoint=best_clean", "best or last"),
    "weights of an attacked panel": (
        {"panels": [{**config()["panels"][1], "checkpoint": "last"}], "references": []},
        "checkpoint=last",
        "the figure's",
    ),
    "missing key": ({"panels": [{**PANEL, "title": ""}]}, "panels[0]", "a name"),
    "value in a panel's axis": (
        {"panels": [{**PANEL, "x": {**NOISE, "unit": "dB"}}]},
        "x.unit=dB",
        "none or percent",
    ),
    "a method nobody trains": (
        {"panels": [{**PANEL, "methods": ["xnet"]}]},
        "panels[0]",
        "a list of methods",
    ),
    "a key that is no panel's x": (
        {"panels": [{**PANEL, "where": {"data.fraction": 1}}], "references": []},
        "panels[0].where.data.fraction",
        "data.label_noise",
    ),
    "panel that is no group": ({"panels": ["noise"]}, "panels[0]=noise", "a group of keys"),
    "name of the file": ({"name": "fig3"}, "name=fig3", "fig2_test"),
    "no panels": ({"panels": [], "references": []}, "panels=[]", "one or more"),
    "no layers": ({"kind": "distances", "panels": [], "references": []}, "panels=[]", "one or more"),
    "panel twice": ({"panels": [PANEL, PANEL]}, "name noise", "unique"),
    "method twice": ({"panels": [{**PANEL, "methods": ["xent", "xent"]}]}, "methods xent", "unique"),
    "two kinds of x": (
        {"panels": [{**PANEL, "x": {**NOISE, "attack": "white_ifgsm"}}]},
        "attack=white_ifgsm",
        "one of them",
    ),
    "no x": ({"panels": [{**PANEL, "x": {"label": "noise"}}]}, "key=None", "one of them"),
    "unknown attack": ({"attacks": {}}, "x.attack=white_ifgsm", "there are none"),
    "metric under attack": (
        {"panels": [PANEL, {**WHITE, "y": ACCURACY}]},
        "metric=test_accuracy",
        "accuracy",
    ),
    "attack without a strength": (
        {"panels": [{**PANEL, "y": {**ACCURACY, "attack": "white_ifgsm"}}, WHITE]},
        "at=None",
        "both or none",
    ),
    "attack on both axes": (
        {"panels": [PANEL, {**WHITE, "y": {**WHITE["y"], "attack": "white_ifgsm", "at": 0.1}}]},
        "y.attack=white_ifgsm",
        "null",
    ),
    "unknown attack on y": (
        {"panels": [{**PANEL, "y": {**ACCURACY, "metric": "accuracy", "attack": "grey", "at": 1}}, WHITE]},
        "y.attack=grey",
        "white_ifgsm",
    ),
    "reference's panel": ({"references": [{**REFERENCE, "panel": "nose"}]}, "panel=nose", "noise, white"),
    "reference's points": ({"references": [{**REFERENCE, "points": [[1.0]]}]}, "points=", "a list of [x, y]"),
    "attack's overrides": (
        {"attacks": {"white_ifgsm": {"overrides": "a"}}},
        "overrides=a",
        "a list of overrides",
    ),
    "attack that is no group": ({"attacks": {"white_ifgsm": 3}}, "attacks.white_ifgsm", "a group of keys"),
    "claim's kind": (
        {"claims": [{**GREATER, "kind": "larger"}]},
        "kind=larger",
        "value, above, greater, trend",
    ),
    "claim without a kind": (
        {"claims": [{"id": "a"}]},
        "claims[0].kind=None",
        "value, above, greater, trend",
    ),
    "claim twice": ({"claims": [GREATER, GREATER]}, "id v", "unique"),
    "claim's panel": ({"claims": [{**GREATER, "panel": "nose"}]}, "panel=nose", "noise, white"),
    "claim's other panel": ({"claims": [{**GREATER, "right_panel": "nose"}]}, "panel=nose", "noise, white"),
    "claim's method": (
        {"claims": [{**GREATER, "pairs": [["hinge", "xent"]]}]},
        "method hinge",
        "margin_l1_all",
    ),
    "method of a list": (
        {"claims": [{**GREATER, "pairs": [[["margin_l1_all", "hinge"], "xent"]]}]},
        "method hinge",
        "margin_l1_all",
    ),
    "method that the other panel lacks": (
        {
            "claims": [
                {**GREATER, "panel": "white", "pairs": [["margin_l1_all", "xent"]], "right_panel": "noise"}
            ]
        },
        "method margin_l1_all in panel white",
        "margin_l2_all, xent",
    ),
    "ratio of nothing": (
        {"claims": [{**{k: VALUE[k] for k in ("id", "says", "where")}, "kind": "ratio", "low": 1.2}]},
        "bench is missing",
        "a row of results/bench.json",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_what_is_allowed_and_the_file(name):
    changes, value, allowed = WRONG[name]
    text = sentence(**changes)
    assert value in text
    assert allowed in text


def test_a_key_that_is_missing_is_named():
    broken = config()
    del broken["question"]
    with pytest.raises(ConfigError, match="question is missing: it must be one sentence"):
        parse_figure(broken, FILE)


def test_an_unknown_key_is_named_with_its_part():
    text = sentence(panels=[{**PANEL, "colour": "red"}])
    assert "figure.panels[0]" in text
    assert "no key colour" in text
