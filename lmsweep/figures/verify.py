"""Compare a figure's table with the expected one."""

import pandas as pd

# Other processors round differently, and a few hundred steps of training make that visible. Absolute for
# accuracies; relative for what is larger than 1, as distances are.
MEAN_TOLERANCE = 0.02
_KEYS = ("panel", "method", "x", "layer", "split", "step")


def differences(
    found: pd.DataFrame, expected: pd.DataFrame, mean_tolerance: float = MEAN_TOLERANCE
) -> list[str]:
    """One sentence for everything that differs: cells and n exactly, means by more than the tolerance."""
    keys = [key for key in _KEYS if key in expected.columns]
    for name in [*keys, "mean", "n"]:
        for table, which in ((found, "found"), (expected, "expected")):
            if name not in table.columns:
                return [f"The {which} table has no column {name}."]
    ours, theirs = (_cells(table, keys) for table in (found, expected))
    sentences = [f"{cell}: expected, but not found." for cell in theirs if cell not in ours]
    sentences += [f"{cell}: found, but not expected." for cell in ours if cell not in theirs]
    for cell, (mean, n) in ours.items():
        if cell not in theirs:
            continue
        wanted, wanted_n = theirs[cell]
        if n != wanted_n:
            sentences.append(f"{cell}: n is {n}, expected {wanted_n}.")
        # Written so that a mean which is no number differs; two of them are the same.
        if not abs(mean - wanted) <= mean_tolerance * max(1.0, abs(wanted)) and not (
            mean != mean and wanted != wanted
        ):
            sentences.append(f"{cell}: mean is {mean:.6g}, expected {wanted:.6g} within {mean_tolerance:g}.")
    return sentences


def _cells(table: pd.DataFrame, keys: list[str]) -> dict[str, tuple[float, int]]:
    texts = [
        [f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}" for value in table[key]]
        for key in keys
    ]
    names = [", ".join(row) for row in zip(*texts, strict=True)]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated} is there twice")
    return dict(zip(names, zip(table["mean"], table["n"], strict=True), strict=True))
