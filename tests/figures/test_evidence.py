"""Differences are paired over seeds."""

import numpy as np
import pytest

from lmsweep.figures.statistics import Comparison, Evidence, NotRunError
from tests.figures.examples import cell, figure, points


def evidence(table):
    return Evidence(figure(), table)


def test_differences_are_per_common_seed():
    xent = cell("noise", "xent", 0.8, [0.1, 0.5, 0.9]).iloc[::-1]
    margin = cell("noise", "margin_l2_all", 0.8, [0.2, 0.7, 0.0, 0.3])
    margin = margin[margin["seed"] != 2]  # seeds 0, 1, 3
    what, y = evidence(points(xent, margin)).difference(("noise", "noise"), "margin_l2_all", "xent", 0.8)
    assert y.to_dict() == {0: pytest.approx(0.1), 1: pytest.approx(0.2)}
    assert what == "Margin l2, all layers against Cross-entropy"


def test_pairing_resolves_what_spreads_more_between_seeds_than_between_methods():
    base = np.array([0.1, 0.5, 0.9])
    values = evidence(points(cell("p", "xent", 0, list(base)), cell("p", "hinge", 0, list(base + 0.01))))
    found = Comparison.of(*values.difference(("p", "p"), "hinge", "xent", 0))
    assert found.verdict() == "holds"
    assert (found.low, found.high, found.n) == (pytest.approx(0.01), pytest.approx(0.01), 3)


def test_an_x_that_a_method_lacks_is_not_run():
    table = points(
        *(cell("p", "hinge", x, [0.9 - x, 0.1]) for x in (0, 1)), cell("p", "margin_l2_all", 0, [0.54, 0.57])
    )
    values = evidence(table)
    assert values.places("all", [("p", ["hinge", "margin_l2_all"])]) == ([0.0], {1.0})
    with pytest.raises(NotRunError, match="Margin l2, all layers has no value at x = 1 in panel p"):
        values.at("p", "margin_l2_all", 1)


def test_no_seed_in_common_is_not_run():
    values = evidence(
        points(cell("p", "xent", 0, [0.5, 0.6]).iloc[:1], cell("p", "hinge", 0, [0.5, 0.6]).iloc[1:])
    )
    with pytest.raises(NotRunError, match="no seed in common"):
        values.difference(("p", "p"), "hinge", "xent", 0)


def test_a_cell_with_two_settings_is_a_mistake():
    with pytest.raises(ValueError, match="select a setting first"):
        evidence(points(cell("p", "xent", 0, [0.5]), cell("p", "xent", 0, [0.5], setting="{1}")))
