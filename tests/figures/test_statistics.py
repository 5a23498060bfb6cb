"""Means, bootstrap intervals, and the verdicts that follow from them."""

import math

import numpy as np
import pandas as pd
import pytest

from lmsweep.figures.statistics import Comparison, interval, slopes, x_key
from lmsweep.seeds import derive_seed


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


@pytest.mark.parametrize(
    ("low", "high", "n", "verdict"),
    [
        (0.1, 0.2, 3, "holds"),
        (0.05, 0.2, 3, "not resolved"),  # the threshold itself is not above it
        (-0.2, 0.05, 3, "not resolved"),
        (-0.2, 0.04, 3, "fails"),
        (0.0, 0.2, 3, "not resolved"),
        (0.1, 0.1, 1, "not resolved"),
        (-0.1, -0.1, 1, "not resolved"),
    ],
)
def test_verdicts_of_an_interval_against_a_threshold(low, high, n, verdict):
    assert Comparison("a", 0.0, (low + high) / 2, low, high, n).verdict(0.05) == verdict


def test_slopes_are_those_of_a_straight_line_fit_over_ranks():
    table = pd.DataFrame(np.random.default_rng(0).random((4, 5)), index=[0, 1, 3, 7])
    expected = [np.polyfit(range(5), row, 1)[0] for row in table.to_numpy()]
    assert slopes(table).to_numpy() == pytest.approx(expected)
    assert list(slopes(table).index) == [0, 1, 3, 7]


def test_one_place_on_an_axis_is_one_key():
    assert x_key(0.1 + 0.2) == x_key(0.3)
