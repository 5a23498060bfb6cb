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
    assert (
        with_interval(Comparison("a", 0, 0.013, 0.004, 0.021, 5), "percent", sign=True) == "+1.3% [0.4, 2.1]"
    )
    assert (
        with_interval(Comparison("a", 0, -0.013, -0.02, 0.0, 5), "percent", sign=True) == "-1.3% [-2.0, 0.0]"
    )
    assert with_interval(Comparison("a", 0, 0.0, -0.1, 0.1, 5), "percent", sign=True) == "0.0% [-10.0, 10.0]"
    assert with_interval(Comparison("a", 0, 0.5, 0.5, 0.5, 1), "none", sign=True) == "+0.5"


def test_what_decides_a_failure_is_told_before_what_is_wider():
    wide, failing = Comparison("a", 0.0, 0.1, -0.9, 1.0, 3), Comparison("b", 1.0, -0.2, -0.3, -0.1, 3)
    assert weakest([wide, failing], 0.0, "none", "none").startswith(
        "weakest -0.2 [-0.3, -0.1] at 1 (b); holds at 0 of 2"
    )
