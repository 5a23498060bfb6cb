"""Numbers in sentences."""

import pytest

from lmsweep.figures.statistics import Comparison
from lmsweep.figures.words import amount, place, weakest, with_interval


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.9641, "percent", "96.4%"), (100.25, "none", "100"), (-0.0001, "percent", "0.0%"), (0.0, "none", "0")],
)
def test_amounts(value, unit, text):
    assert amount(value, unit) == text


def test_places():
    assert place(0.8, "percent") == " at 80%"
    assert place(0.00125, "percent") == " at 0.125%"
    assert place(33.0, "none") == " at 33"
    assert place(None, "none") == ""


def test_signs_and_intervals():
    # +- 4.3027 * 0.01 / sqrt(3) = 0.0248
    assert with_interval(Comparison("a", 0, (0.01, 0.0, 0.02)), "percent", sign=True) == "+1.0% [-1.5, 3.5]"
    assert with_interval(Comparison("a", 0, (-0.01, 0.0, -0.02)), "percent", sign=True) == "-1.0% [-3.5, 1.5]"
    assert with_interval(Comparison("a", 0, (-0.01, 0.0, 0.01)), "percent", sign=True) == "0.0% [-2.5, 2.5]"
    assert with_interval(Comparison("a", 0, (0.4, 0.6)), "none", sign=True) == "+0.5"
    assert with_interval(Comparison("a", 0, (0.5,)), "none", sign=True) == "+0.5"


def test_what_decides_a_failure_is_told_before_what_is_wider():
    wide, failing = Comparison("a", 0.0, (-0.3, 0.1, 0.5)), Comparison("b", 1.0, (-0.19, -0.2, -0.21))
    assert weakest([wide, failing], 0.0, "none", "none").startswith(
        "weakest -0.2 [-0.225, -0.175] at 1 (b); holds at 0 of 2"
    )
