"""A figure's table as CSV: six significant digits, and the same bytes for the same numbers."""

from io import StringIO
from pathlib import Path

import pandas as pd

from lmsweep.files import write_atomically

_FLOATS = ("x", "step", "mean", "low", "high", "val")


def to_csv(table: pd.DataFrame) -> str:
    """The text of the CSV file."""
    text = table.copy()
    for name in _FLOATS:
        if name in text:
            text[name] = [f"{value + 0.0:.6g}" for value in text[name]]  # + 0.0: no "-0"
    return text.to_csv(index=False, lineterminator="\n")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the table in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_csv(table))


def read_csv(path: Path | str | StringIO) -> pd.DataFrame:
    """Read what `write_csv` wrote. Run ids stay text: some of them, as 123456e78901, look like numbers."""
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in text.columns:
        if name in _FLOATS:
            text[name] = [float(value) for value in text[name]]
        elif name == "n":
            text[name] = [int(value) for value in text[name]]
    return text
