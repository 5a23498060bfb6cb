"""Every option is declared once: functions, callback and configuration have the same ones."""

import inspect
import math

import pytest

from lmsweep.config.groups import MarginConfig
from lmsweep.margin import MarginLoss, margin_distance, margin_loss
from lmsweep.margin.options import MarginOptions, declared

DISTANCE = {
    "norm": 2.0,
    "top_k": None,
    "epsilon": 1e-6,
    "exact": False,
    "score": "logit",
    "layer_weights": None,
}
HINGE = {**DISTANCE, "gamma": 1.0, "aggregation": "max", "clip": None, "layer_reduction": "sum"}
CALLBACK = {**HINGE, "layers": "all", "weight": 1.0, "candidates": "score", "batch_norm": "batch"}


def defaults(function) -> dict:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_signatures_have_every_option_with_its_default():
    assert defaults(margin_distance) == {**DISTANCE, "last_layer": None}
    assert defaults(margin_loss) == {**HINGE, "last_layer": None, "generator": None, "reduction": "mean"}
    found = defaults(MarginLoss)
    assert callable(found.pop("targets"))
    assert found.pop("seed") == 0
    assert found == CALLBACK


def test_the_configuration_has_the_options_of_the_callback():
    assert set(MarginConfig.model_fields) == set(CALLBACK)
    assert set(declared(MarginOptions)) == set(CALLBACK)


def test_help_explains_every_option():
    for function in (margin_distance, margin_loss, MarginLoss.__init__):
        for name in HINGE.keys() & defaults(function).keys():
            assert f"    {name}: " in function.__doc__


@pytest.mark.parametrize("function", [margin_loss, margin_distance, MarginLoss])
def test_a_keyword_that_does_not_exist_is_refused_by_name(function):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'nrom': its options are norm, top_k"):
        function(nrom=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'candidates'"):
        margin_loss(None, None, None, candidates="score")


BAD = {
    "norm": [0.5, "two", True, None, [2]],
    "gamma": [0, -1, math.inf, math.nan, True, "1", [], [1, 0], None],
    "top_k": [0, 1.5, True, "all"],
    "epsilon": [0, None, "1"],
    "exact": [1, "yes", None],
    "score": ["prob", None, 3],
    "layer_weights": [[], [0], 1.0, "12"],
    "clip": [0, -1, True],
    "weight": [0, math.inf, "1"],
    "layers": ["", [], [1], 3],
    "batch_norm": ["none", None],
    "candidates": ["random", None],
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_allowed_is_refused_by_the_callback_and_by_the_configuration(name):
    good = {**CALLBACK, "layers": "all"}
    assert MarginConfig.model_validate(good).model_dump() == good
    for value in BAD[name]:
        with pytest.raises(ValueError, match=f"^{name}=.* is not allowed: it must be "):
            MarginLoss(**{name: value})
        with pytest.raises(ValueError, match=rf"\n{name}\n"):
            MarginConfig.model_validate({**good, name: value})


def test_options_given_by_position_are_checked_too():
    with pytest.raises(ValueError, match="weight=-1 is not allowed"):
        MarginLoss("all", -1)
    with pytest.raises(TypeError):
        MarginLoss("all", 1.0, 2.0)


def test_infinity_is_written_as_a_word_and_read_again():
    config = MarginConfig.model_validate({**CALLBACK, "norm": "inf"})
    assert config.norm == math.inf
    assert config.model_dump()["norm"] == "inf"
