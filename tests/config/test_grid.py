"""Axes to jobs."""

import itertools

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lmsweep.config.grid import expand


def jobs(params, by_method=None, arguments=(), method="xent"):
    found = expand(params, by_method or {}, list(arguments), OverridesParser.create(), method)
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


def test_a_method_gets_the_axes_of_every_glob_that_fits_it_and_the_last_one_wins():
    rules = {
        "margin_*": {"margin.gamma": "1,2", "optimizer": "rmsprop"},
        "margin_linf_*": {"margin.gamma": 0.1},
    }
    params = {"method": "xent,margin_l2_all,margin_linf_all", "optimizer": "sgd"}
    assert set(jobs(params, rules)) == {
        frozenset(("method=xent", "optimizer=sgd")),
        frozenset(("method=margin_l2_all", "optimizer=rmsprop", "margin.gamma=1")),
        frozenset(("method=margin_l2_all", "optimizer=rmsprop", "margin.gamma=2")),
        frozenset(("method=margin_linf_all", "optimizer=rmsprop", "margin.gamma=0.1")),
    }


def test_the_command_line_replaces_axes_of_both_kinds():
    rules = {"margin_*": {"margin.gamma": "1,2"}}
    params = {"method": "xent,margin_l2_all", "seed": "range(3)"}
    assert set(jobs(params, rules, ["seed=7", "margin.gamma=5", "method=margin_l1_all"])) == {
        frozenset(("seed=7", "margin.gamma=5", "method=margin_l1_all"))
    }


@pytest.mark.parametrize(("method", "expected"), [("xent", 1), ("margin_l2_all", 2)])
def test_jobs_that_name_no_method_have_the_chosen_one(method, expected):
    assert len(jobs({"seed": 0}, {"margin_*": {"margin.gamma": "1,2"}}, method=method)) == expected


def test_values_may_be_lists():
    (job,) = jobs({"margin.gamma": [1, 2]})
    assert job == {"margin.gamma=[1,2]"}
