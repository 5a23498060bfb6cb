"""Axes and rules to jobs."""

import itertools

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lmsweep.config.sweeps import expand, parse_grid
from lmsweep.errors import ConfigError

COMPOSED = {"method": "xent", "adversarial": "none", "margin.norm": 2, "margin.layers": "all", "seed": 0}


def jobs(params, rules=None, arguments=(), **composed):
    values = {**COMPOSED, **composed}
    found = expand(params, rules or {}, list(arguments), OverridesParser.create(), values.__getitem__)
    return [frozenset(job) for job in found]


def test_without_rules_it_is_the_product():
    params = {"method": "xent,hinge", "seed": "range(3)", "data.label_noise": "0,0.4"}
    expected = {
        frozenset((f"method={m}", f"seed={s}", f"data.label_noise={n}"))
        for m, s, n in itertools.product(["xent", "hinge"], range(3), ["0", "0.4"])
    }
    found = jobs(params)
    assert len(found) == 12
    assert set(found) == expected


def test_a_job_gets_the_axes_of_every_rule_that_fits_it_and_the_last_one_wins():
    rules = {
        "margins": {"when": {"method": "margin"}, "axes": {"margin.gamma": "1,2", "optimizer": "rmsprop"}},
        "linf": {"when": {"method": "margin", "margin.norm": "inf"}, "axes": {"margin.gamma": 0.1}},
    }
    params = {"method": "xent,margin", "margin.norm": "2,inf", "optimizer": "sgd"}
    assert set(jobs(params, rules)) == {
        frozenset(("method=xent", "margin.norm=2", "optimizer=sgd")),
        frozenset(("method=xent", "margin.norm=inf", "optimizer=sgd")),
        frozenset(("method=margin", "margin.norm=2", "optimizer=rmsprop", "margin.gamma=1")),
        frozenset(("method=margin", "margin.norm=2", "optimizer=rmsprop", "margin.gamma=2")),
        frozenset(("method=margin", "margin.norm=inf", "optimizer=rmsprop", "margin.gamma=0.1")),
    }


def test_a_rule_may_look_at_an_axis_that_a_later_rule_adds():
    rules = {
        "slow": {"when": {"method": "xent", "adversarial": "pgd"}, "axes": {"trainer.max_steps": 9}},
        "madry": {"when": {"method": "xent"}, "axes": {"adversarial": "none,pgd"}},
    }
    assert set(jobs({"method": "xent,hinge"}, rules)) == {
        frozenset(("method=hinge",)),
        frozenset(("method=xent", "adversarial=none")),
        frozenset(("method=xent", "adversarial=pgd", "trainer.max_steps=9")),
    }


@pytest.mark.parametrize(
    ("wanted", "said", "fits"),
    [
        (1, "1.0", True),
        ("inf", "inf", True),
        (float("inf"), "inf", True),
        (1, "true", False),
        ([1, "inf"], "inf", True),
        ([1, 2], "inf", False),
        ("all", "'all'", True),
    ],
)
def test_a_value_fits_however_it_is_written(wanted, said, fits):
    rules = {"one": {"when": {"margin.norm": wanted}, "axes": {"margin.gamma": 7}}}
    (job,) = jobs({"margin.norm": said}, rules)
    assert ("margin.gamma=7" in job) == fits


def test_the_command_line_replaces_axes_of_both_kinds_and_rules_look_at_what_it_says():
    rules = {
        "margins": {"when": {"method": "margin"}, "axes": {"margin.gamma": "1,2"}},
        "hinges": {"when": {"method": "hinge"}, "axes": {"margin.gamma": "3,4", "optimizer.lr": "1,2"}},
    }
    params = {"method": "xent,margin", "seed": "range(3)"}
    found = jobs(params, rules, ["seed=7", "margin.gamma=5", "method=margin,hinge"])
    assert sorted(map(sorted, found)) == [
        ["margin.gamma=5", "method=hinge", "optimizer.lr=1", "seed=7"],
        ["margin.gamma=5", "method=hinge", "optimizer.lr=2", "seed=7"],
        ["margin.gamma=5", "method=margin", "seed=7"],
    ]


@pytest.mark.parametrize(("method", "expected"), [("xent", 1), ("margin", 2)])
def test_a_key_that_is_no_axis_has_the_composed_value(method, expected):
    rules = {"margins": {"when": {"method": "margin"}, "axes": {"margin.gamma": "1,2"}}}
    assert len(jobs({"seed": 0}, rules, method=method)) == expected


def test_null_takes_an_axis_away():
    rules = {
        "margins": {"when": {"method": "margin"}, "axes": {"margin.gamma": "1,2"}},
        "one_gamma": {"when": {"margin.norm": 1}, "axes": {"margin.gamma": None}},
    }
    assert set(jobs({"method": "margin", "margin.norm": "1,2", "seed": None}, rules)) == {
        frozenset(("method=margin", "margin.norm=1")),
        frozenset(("method=margin", "margin.norm=2", "margin.gamma=1")),
        frozenset(("method=margin", "margin.norm=2", "margin.gamma=2")),
    }


def test_values_may_be_lists():
    (job,) = jobs({"margin.gamma": [1, 2]})
    assert job == {"margin.gamma=[1,2]"}


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            {"axes": {"seed": 1}},
            r"hydra\.sweeper\.rules\.odd\.when is missing: it must be a mapping from keys",
        ),
        ({"when": {"seed": 1}, "axes": {}}, r"rules\.odd\.axes=\{\} is not allowed: it must be a mapping"),
        (
            {"when": {"seed": 1}, "axes": {"seed": 1}, "if": 2},
            r"There is no key hydra\.sweeper\.rules\.odd\.if; hydra\.sweeper\.rules\.odd has when, axes\.",
        ),
        (None, r"hydra\.sweeper\.rules\.odd=null is not allowed: it must be a group of keys"),
    ],
)
def test_a_wrong_rule_is_told_in_one_sentence(rule, sentence):
    with pytest.raises(ConfigError, match=sentence):
        jobs({}, {"odd": rule})


def test_rules_that_decide_about_each_other_are_told():
    rules = {
        "one": {"when": {"method": "xent"}, "axes": {"seed": 1}},
        "other": {"when": {"seed": 1}, "axes": {"method": "hinge"}},
    }
    with pytest.raises(ConfigError, match=r"rules go round in a circle: they choose (method|seed) by"):
        jobs({}, rules)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"same_data": "yes"}, r"grid\.same_data=yes is not allowed: it must be true or false"),
        ({"exact_steps": 0.5}, r"grid\.exact_steps=0\.5 is not allowed: it must be a whole number >= 1"),
        ({"audit": [1]}, r"grid\.audit=1 is not allowed: it must be a list of overrides of conf/audit\.yaml"),
        (
            {"noise": {"fraction": 1, "same_data": True, "weigth": 2}},
            r"There is no key grid\.noise\.weigth; grid\.noise has fraction",
        ),
    ],
)
def test_what_a_scale_says_is_checked(grid, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_grid(grid)


def test_a_key_that_one_word_adds_a_later_word_can_sweep():
    words = ("+model.fails=-1", "model.fails=0,1")
    assert jobs({}, None, words) == [frozenset((words[0], f"model.fails={n}")) for n in (0, 1)]
