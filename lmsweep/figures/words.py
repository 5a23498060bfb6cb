"""How numbers and other values read: in claims, captions and on pages."""

import json
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from lmsweep.figures.statistics import ENOUGH_SEEDS, Comparison

NOTHING = "–"  # noqa: RUF001 - a dash for the eye


def version_of(paper: str) -> str:
    """What a picture is: `our version of Figure 3`, or, where the paper has none, `a figure of our own`."""
    return f"our version of {paper}" if paper.startswith("Figure") else paper


def amount(value: float, unit: str) -> str:
    """A value on an axis with this unit: 96.4% or 0.964."""
    return f"{_scaled(value, unit)}%" if unit == "percent" else _scaled(value, unit)


def place(x: float | None, unit: str) -> str:
    """Where on the x axis: ` at 80%`, or nothing for a number over several x."""
    if x is None:
        return ""
    return f" at {100 * x:.6g}%" if unit == "percent" else f" at {x:.6g}"


def with_interval(comparison: Comparison, unit: str, sign: bool = False) -> str:
    """Mean and interval; too few seeds have none."""
    mean = amount(comparison.mean, unit)
    if sign and float(mean.removesuffix("%")) > 0:
        mean = f"+{mean}"
    if comparison.n < ENOUGH_SEEDS:
        return mean
    return f"{mean} [{_scaled(comparison.low, unit)}, {_scaled(comparison.high, unit)}]"


def weakest(found: Sequence[Comparison], threshold: float, x_unit: str, y_unit: str, per: str = "") -> str:
    """The comparison that decides, with its interval, and how many of all comparisons hold."""
    least = min(found, key=lambda c: (c.verdict(threshold) != "fails", c.low if c.n > 1 else -inf, c.mean))
    said = f"{with_interval(least, y_unit, sign=True)}{per}{place(least.x, x_unit)}"
    if len(found) == 1:
        return said
    holding = sum(c.verdict(threshold) == "holds" for c in found)
    pairs = len({c.what for c in found}) > 1
    of = "comparisons" if pairs else "points"
    return f"weakest {said}{f' ({least.what})' if pairs else ''}; holds at {holding} of {len(found)} {of}"


def text(value: Any) -> str:
    """Any value of a record: numbers short, lists with commas, nothing as a dash."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or NOTHING
    return str(value)


def count(number: int, one: str) -> str:
    """A number with its noun: `1 run`, `2 runs`."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def _scaled(value: float, unit: str) -> str:
    said = f"{100 * value:.1f}" if unit == "percent" else f"{value:.3g}"
    return said.removeprefix("-") if float(said) == 0 else said
