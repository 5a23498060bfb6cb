"""How values read on the page."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "–"  # noqa: RUF001 - a dash for the eye
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)


def text(value: Any) -> str:
    """Any value of a record as words: numbers short, lists with commas, nothing as a dash."""
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


def percent(value: float | None) -> str:
    """A fraction as a percentage."""
    return NOTHING if value is None or math.isnan(value) else f"{value:.2%}"


def milliseconds(seconds: float | None) -> str:
    """A duration of a step."""
    return NOTHING if seconds is None or math.isnan(seconds) else f"{1000 * seconds:.3g} ms"


def times(ratio: float | None) -> str:
    """A ratio of durations."""
    return NOTHING if ratio is None or math.isnan(ratio) else f"{ratio:.2f} ×"  # noqa: RUF001 - times


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def point(value: Any) -> str:
    """A published point."""
    return f"({text(value)})" if isinstance(value, list | tuple) else text(value)


def shorter(cell: str) -> str:
    """A number of the CSV to 4 digits, as the page shows it; anything else unchanged."""
    return f"{float(cell):.4g}" if NUMBER.fullmatch(cell) and "." in cell else cell


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether a column holds numbers only, gaps aside."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(NUMBER.fullmatch(cell) for cell in filled)
