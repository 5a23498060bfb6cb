"""What a claim may say, and how a kind is found."""

from typing import Literal

import pytest

from lmsweep.errors import ConfigError
from lmsweep.figures.claims import KINDS, Claim, Finding
from lmsweep.figures.make import check_claims
from tests.figures.examples import GREATER, VALUE, cell, figure, points

PLAIN = {key: VALUE[key] for key in ("id", "says", "where", "panel")}
TREND = {**PLAIN, "kind": "trend", "pairs": [["margin_l2_all", "xent"]], "toward": "high"}


def test_left_and_right_are_short_for_one_pair():
    short = {key: value for key, value in TREND.items() if key != "pairs"}
    assert figure({**short, "left": "margin_l2_all", "right": "xent"}).claims == figure(TREND).claims


def test_one_x_is_a_list_of_one():
    assert figure({**GREATER, "at": 0.8}).claims[0].at == [0.8]
    assert figure({**GREATER, "at": [0, 0.8]}).claims[0].at == [0.0, 0.8]
    assert figure({**GREATER, "at": "highest"}).claims[0].at == "highest"


def test_a_claim_names_all_that_it_uses():
    gap = {
        **{**PLAIN, "kind": "gap", "left": "margin_l2_all", "right": "xent", "panel2": "white"},
        **{"left2": "margin_l2_all", "right2": "xent"},
    }
    uses = list(figure(gap).claims[0].uses())
    assert uses == [
        *[("noise", "margin_l2_all"), ("noise", "xent")],
        *[("white", "margin_l2_all"), ("white", "xent")],
    ]


WRONG = {
    "at": ({**GREATER, "at": "everywhere"}, "at=everywhere", "all, lowest, highest"),
    "at that is true": ({**GREATER, "at": True}, "at=true", "all, lowest, highest"),
    "at that is no number": ({**GREATER, "at": [0.1, float("nan")]}, "at=", "list of numbers"),
    "pairs": ({**GREATER, "pairs": [["xent"]]}, "pairs=", "a list of [left, right]"),
    "no pairs": ({**GREATER, "pairs": []}, "pairs=[]", "a list of [left, right]"),
    "aggregate": ({**GREATER, "aggregate": "median"}, "aggregate=median", "mean, or null"),
    "toward": ({**TREND, "toward": "left"}, "toward=left", "low or high"),
    "no tolerance": (
        {**VALUE, "method": "xent", "at": 0.8, "paper": 0.9},
        "tolerance is missing",
        "a number >= 0",
    ),
    "words for a value": (
        {**VALUE, "method": "xent", "at": 0.8, "paper": "90%", "tolerance": 0.1},
        "paper=90%",
        "a number",
    ),
    "no reason": (
        {**{k: PLAIN[k] for k in ("id", "says", "where")}, "kind": "statement"},
        "reason is missing",
        "why",
    ),
    "a key of another kind": ({**GREATER, "tolerance": 0.1}, "no key tolerance", "pairs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_by_the_schema_of_that_kind(name):
    claim, value, allowed = WRONG[name]
    with pytest.raises(ConfigError) as error:
        figure(claim)
    assert "figure.claims[0]" in str(error.value)
    assert value in str(error.value)
    assert allowed in str(error.value)


def test_every_kind_is_registered_with_its_word():
    assert list(KINDS) == ["value", "above", "greater", "trend", "gap", "ratio", "statement"]


def test_a_new_kind_is_one_class():
    class LoudClaim(Claim):
        kind: Literal["loud"]

        def judge(self, evidence):
            return Finding("holds", self.says.upper(), 2)

    try:
        claim = KINDS["loud"].model_validate({"kind": "loud", "id": "a", "says": "yes", "where": "Sec. 4"})
        spec = figure().model_copy(update={"claims": [claim]})
        (judged,) = check_claims(spec, points(cell("noise", "xent", 0, [0.5])), "smoke")
        assert (judged.kind, judged.verdict, judged.ours, judged.paper) == ("loud", "holds", "YES", "")
    finally:
        del KINDS["loud"]
