"""Means, Student's t intervals, and the verdicts that follow from them."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lmsweep.figures.statistics import Comparison, best_of, interval, slopes, verdict_of_all, x_key


def test_intervals_are_those_of_scipys_t_test():
    values = np.array([0.91, 0.94, 0.89, 0.97, 0.93])
    assert interval(values) == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval(0.95))
    assert interval(values, 4) == pytest.approx(
        stats.ttest_1samp(values, 0).confidence_interval(1 - 0.05 / 4)
    )


def test_by_hand():
    # Mean 0.4, standard deviation 0.2, t of 2 degrees of freedom 4.3027: 0.4 +- 4.3027 * 0.2 / sqrt(3).
    assert interval([0.2, 0.4, 0.6]) == pytest.approx((0.4 - 0.49683, 0.4 + 0.49683), abs=1e-5)


def test_one_value_has_no_interval_and_equal_values_have_no_width():
    assert all(math.isnan(end) for end in interval([0.3]))
    assert interval([0.1] * 3) == pytest.approx((0.1, 0.1), abs=1e-15)


DRAWS = 10_000


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize(("skewed", "least"), [(False, 0.93), (True, 0.90)])
def test_coverage_and_false_verdicts_by_simulation(n, skewed, least):
    """A bootstrap covers 75% with three seeds, and would `hold` one time in eight without any effect."""
    rng = np.random.default_rng(n)
    shape = (2, DRAWS, n)
    ours, theirs = rng.lognormal(0, 0.5, shape) if skewed else rng.normal(0, 1, shape)
    mean = math.exp(0.5**2 / 2) if skewed else 0.0
    covered = sum(low <= mean <= high for low, high in map(interval, ours))
    assert covered / DRAWS >= least
    verdicts = [Comparison("a", None, tuple(pair)).verdict() for pair in ours - theirs]
    chance = 3 * math.sqrt(0.025 * 0.975 / DRAWS)  # normal differences hold falsely 2.5 times in 100
    assert verdicts.count("holds") / DRAWS <= 0.025 + chance
    assert verdicts.count("fails") / DRAWS <= 0.025 + chance


def test_claims_of_many_parts_do_not_resolve_by_chance():
    """Without any effect the best of six holds, and one of ten fails, at most 2.5 times in 100."""
    rng = np.random.default_rng(0)
    best = of_all = 0
    for draw in rng.normal(0, 1, (1000, 10, 5)):
        found = [Comparison("a", None, tuple(values)) for values in draw]
        best += best_of(found[:6]).verdict() == "holds"
        of_all += verdict_of_all(found, 0.0) != "not resolved"
    chance = 3 * math.sqrt(0.025 * 0.975 / 1000)
    assert best / 1000 <= 0.025 + chance
    assert of_all / 1000 <= 0.025 + chance


def around(mean: float, half: float, n: int = 3) -> Comparison:
    """A comparison with the interval mean +- half."""
    step = half * math.sqrt(n * (n - 1) / 2) / stats.t.isf(0.025, n - 1) if n > 1 else 0.0
    return Comparison("a", 0.0, (mean - step, mean + step, *[mean] * (n - 2)) if n > 1 else (mean,))


@pytest.mark.parametrize(
    ("low", "high", "n", "verdict"),
    [
        (0.1, 0.2, 3, "holds"),
        (0.04, 0.2, 3, "not resolved"),
        (-0.2, 0.06, 3, "not resolved"),
        (-0.2, 0.04, 3, "fails"),
        (0.1, 0.2, 2, "not resolved"),  # too few seeds
        (0.1, 0.1, 1, "not resolved"),
        (-0.1, -0.1, 1, "not resolved"),
    ],
)
def test_verdicts_of_an_interval_against_a_threshold(low, high, n, verdict):
    comparison = around((low + high) / 2, (high - low) / 2, n)
    if n > 1:
        assert (comparison.low, comparison.high) == (pytest.approx(low), pytest.approx(high))
    assert comparison.verdict(0.05) == verdict


def test_equal_values_at_the_threshold_are_not_above_it():
    assert Comparison("a", 0.0, (0.0, 0.0, 0.0)).verdict() == "not resolved"
    assert Comparison("a", 0.0, (1.0, 1.0, 1.0)).verdict(0.999, 1.001) == "holds"


def test_the_best_of_several_is_corrected_for_the_choice():
    good, bad = around(0.1, 0.09), around(-0.5, 0.1)
    assert good.verdict() == "holds"
    assert best_of([good]).verdict() == "holds"
    assert best_of([good, bad]).verdict() == "not resolved"  # low would be 0.1 - 0.09 * 6.205 / 4.303
    assert best_of([around(0.1, 0.06), bad]).verdict() == "holds"
    assert best_of([bad, bad]).verdict() == "fails"
    assert best_of([bad, around(-0.4, 1.0)]).verdict() == "not resolved"  # the second one may be above


def test_one_of_many_fails_only_when_it_still_does_after_the_correction():
    good, worse = around(0.1, 0.01), around(-0.1, 0.09)
    assert verdict_of_all([good] * 9, 0.0) == "holds"  # no correction: each passes by itself
    assert verdict_of_all([worse], 0.0) == "fails"
    assert verdict_of_all([worse, *[good] * 9], 0.0) == "not resolved"
    assert verdict_of_all([around(-0.1, 0.02), *[good] * 9], 0.0) == "fails"


def test_slopes_are_those_of_a_straight_line_fit_over_ranks():
    table = pd.DataFrame(np.random.default_rng(0).random((4, 5)), index=[0, 1, 3, 7])
    expected = [np.polyfit(range(5), row, 1)[0] for row in table.to_numpy()]
    assert slopes(table).to_numpy() == pytest.approx(expected)
    assert list(slopes(table).index) == [0, 1, 3, 7]


def test_one_place_on_an_axis_is_one_key():
    assert x_key(0.1 + 0.2) == x_key(0.3)
