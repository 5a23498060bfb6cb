"""Numbers as a reader of a claims table wants them."""

from collections.abc import Sequence

from lmsweep.figures.comparison import Comparison
from lmsweep.figures.spec import Panel


def amount(value: float, unit: str) -> str:
    """A value: 96.4% or 0.964."""
    return f"{_scaled(value, unit)}%" if unit == "percent" else _scaled(value, unit)


def place(x: float | None, unit: str) -> str:
    """Where: ` at 80%`, or nothing for a number over several x."""
    if x is None:
        return ""
    return f" at {100 * x:.6g}%" if unit == "percent" else f" at {x:.6g}"


def with_interval(comparison: Comparison, unit: str, sign: bool = False) -> str:
    """Mean and interval; one seed has none."""
    mean = amount(comparison.mean, unit)
    if sign and float(mean.removesuffix("%")) > 0:
        mean = f"+{mean}"
    if comparison.n < 2:
        return mean
    return f"{mean} [{_scaled(comparison.low, unit)}, {_scaled(comparison.high, unit)}]"


def summary(found: Sequence[Comparison], threshold: float, panel: Panel, per: str = "") -> str:
    """The comparison that decides, with its interval, and how many there are."""
    weakest = min(found, key=lambda c: (c.verdict(threshold) != "fails", c.low - threshold, c.mean))
    text = f"{with_interval(weakest, panel.y.unit, sign=True)}{per}{place(weakest.x, panel.x.unit)}"
    if len(found) == 1:
        return text
    holding = sum(c.verdict(threshold) == "holds" for c in found)
    pairs = len({c.what for c in found}) > 1
    of = "comparisons" if pairs else "points"
    return f"weakest {text}{f' ({weakest.what})' if pairs else ''}; holds at {holding} of {len(found)} {of}"


def _scaled(value: float, unit: str) -> str:
    text = f"{100 * value:.1f}" if unit == "percent" else f"{value:.3g}"
    return text.removeprefix("-") if float(text) == 0 else text
