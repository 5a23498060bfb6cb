"""Mean, bootstrap interval, and what is missing."""

import math

import numpy as np
import pandas as pd
import pytest

from lmsweep.figures.aggregate import COLUMNS, aggregate, interval, missing, ordered, x_key
from lmsweep.seeds import derive_seed
from tests.figures.examples import cell, figure, points


def test_the_bootstrap_is_that_of_a_naive_loop():
    values = np.array([0.91, 0.94, 0.89, 0.97, 0.93])
    rng = np.random.default_rng(derive_seed(0, "bootstrap/a name"))
    draws = rng.integers(0, 5, (10_000, 5))
    means = sorted(sum(float(values[i]) for i in draw) / 5 for draw in draws)
    low, high = interval(values, "a name")
    # numpy interpolates between the order statistics 0.025 * 9999 = 249.975 and 9749.025
    assert low == pytest.approx(means[249] + 0.975 * (means[250] - means[249]), abs=1e-12)
    assert high == pytest.approx(means[9749] + 0.025 * (means[9750] - means[9749]), abs=1e-12)


def test_two_values_are_their_own_interval():
    # Both draws are the same value with probability 1/4, far more than 2.5% on either side.
    assert interval(np.array([0.2, 0.6]), "x") == (0.2, 0.6)


def test_of_many_values_it_is_the_normal_interval():
    values = np.random.default_rng(0).normal(0.0, 1.0, 2000)
    low, high = interval(values, "many")
    half = 1.959964 * values.std() / math.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, rel=0.03, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, rel=0.03, abs=0.05 * half)


def test_one_value_and_equal_values_have_no_width():
    assert interval(np.array([0.3]), "x") == (0.3, 0.3)
    low, high = interval(np.array([0.1] * 3), "x")
    assert low <= np.array([0.1] * 3).mean() <= high
    assert high - low < 1e-15


def test_random_numbers_depend_on_the_name_only():
    values = np.random.default_rng(1).random(9)
    assert interval(values, "a") == interval(values.copy(), "a")
    assert interval(values, "a") != interval(values, "b")


def test_the_table_has_mean_interval_n_and_the_runs_in_order_of_seed():
    table = aggregate(
        points(cell("noise", "xent", 0.8, [0.2, 0.6], [0.3, 0.5]), cell("noise", "xent", 0, [0.9])).iloc[::-1]
    )
    assert list(table.columns) == COLUMNS
    assert table["x"].tolist() == [0.0, 0.8]
    row = table.iloc[1]
    assert (row["mean"], row["low"], row["high"], row["n"]) == (pytest.approx(0.4), 0.2, 0.6, 2)
    assert row["selected"] == "xent{}0 xent{}1"
    assert row["val"] == pytest.approx(0.4)


def test_a_point_without_a_number_does_not_count():
    table = aggregate(points(cell("noise", "xent", 0.8, [0.2, np.nan]), cell("noise", "xent", 0.9, [np.nan])))
    assert table[["x", "mean", "n", "selected"]].to_numpy().tolist() == [[0.8, 0.2, 1, "xent{}0"]]


def test_two_settings_in_a_cell_are_a_mistake():
    with pytest.raises(ValueError, match="a seed is there twice"):
        aggregate(points(cell("noise", "xent", 0, [0.1]), cell("noise", "xent", 0, [0.1], setting="{1}")))


def test_rows_come_in_the_order_of_the_figure():
    table = aggregate(
        points(
            *(cell("white", m, x, [0.1]) for m in ("xent", "margin_l2_all") for x in (0.2, 0.1)),
            *(cell("noise", m, 0.0, [0.1]) for m in ("margin_l1_all", "xent")),
        )
    )
    rows = ordered(table, figure())[["panel", "method", "x"]].to_numpy().tolist()
    assert rows == [
        *[["noise", "xent", 0.0], ["noise", "margin_l1_all", 0.0]],
        *[["white", "margin_l2_all", 0.1], ["white", "margin_l2_all", 0.2]],
        *[["white", "xent", 0.1], ["white", "xent", 0.2]],
    ]
    with pytest.raises(ValueError, match="hinge"):
        ordered(aggregate(cell("noise", "hinge", 0, [0.1])), figure())


def test_expected_cells_without_a_number_are_missing_with_their_reason():
    there = points(cell("noise", "xent", 0.1 + 0.2, [0.5]), cell("noise", "margin_l2_all", 0.3, [np.nan]))
    expected = [
        {"panel": "white", "method": "xent", "x": 0.1, "reason": "not evaluated"},
        {"panel": "noise", "method": "margin_l2_all", "x": 0.3, "reason": "failed: it diverged"},
        {"panel": "noise", "method": "xent", "x": 0.3, "reason": "not trained"},
        {"panel": "noise", "method": "xent", "x": 0.5, "reason": "not trained"},
    ]
    assert missing(there, figure(), expected) == [expected[3], expected[1], expected[0]]
    assert missing(there, figure(), []) == []
    empty = pd.DataFrame(columns=there.columns)
    assert len(missing(empty, figure(), expected)) == 4


def test_nothing_at_all_is_an_empty_table():
    assert aggregate(cell("noise", "xent", 0, [])).empty
    assert x_key(0.1 + 0.2) == x_key(0.3)
