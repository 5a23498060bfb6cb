"""Compare a figure's table with the expected one."""

import pandas as pd

# Absolute for accuracies; relative for what is larger than 1, as distances are.
#
# Processors with other instructions add up in another order and round differently. A few hundred steps of
# training can make of that what another seed would make: scikit-learn's digits with 80% noise gave 32%
# instead of 16% in one of three runs. So means may also differ by what seeds differ, measured by the widths
# of both intervals together. Of two times three seeds without any difference, 1% of the means are further
# apart. Where seeds agree, the tolerance stays what it is.
MEAN_TOLERANCE = 0.02
_KEYS = ("panel", "method", "x", "layer", "split", "step")


def differences(
    found: pd.DataFrame, expected: pd.DataFrame, mean_tolerance: float = MEAN_TOLERANCE
) -> list[str]:
    """One sentence for everything that differs: cells and n exactly, means by more than is allowed.

    Allowed are the tolerance and the widths of both intervals over seeds, whichever is more.
    """
    keys = [key for key in _KEYS if key in expected.columns]
    for name in [*keys, "mean", "n"]:
        for table, which in ((found, "found"), (expected, "expected")):
            if name not in table.columns:
                return [f"The {which} table has no column {name}."]
    ours, theirs = (_cells(table, keys) for table in (found, expected))
    sentences = [f"{cell}: expected, but not found." for cell in theirs if cell not in ours]
    sentences += [f"{cell}: found, but not expected." for cell in ours if cell not in theirs]
    for cell, (mean, n, width) in ours.items():
        if cell not in theirs:
            continue
        wanted, wanted_n, wanted_width = theirs[cell]
        allowed = max(mean_tolerance * max(1.0, abs(wanted)), width + wanted_width)
        if n != wanted_n:
            sentences.append(f"{cell}: n is {n}, expected {wanted_n}.")
        # Written so that a mean which is no number differs; two of them are the same.
        if not abs(mean - wanted) <= allowed and not (mean != mean and wanted != wanted):
            sentences.append(f"{cell}: mean is {mean:.6g}, expected {wanted:.6g} within {allowed:.2g}.")
    return sentences


def _cells(table: pd.DataFrame, keys: list[str]) -> dict[str, tuple[float, int, float]]:
    """The mean, n and width of the interval of every cell."""
    texts = [
        [f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}" for value in table[key]]
        for key in keys
    ]
    names = [", ".join(row) for row in zip(*texts, strict=True)]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated} is there twice")
    known = {"low", "high"} <= set(table.columns)
    widths = (table["high"] - table["low"]).fillna(0.0) if known else [0.0] * len(table)
    return dict(zip(names, zip(table["mean"], table["n"], widths, strict=True), strict=True))
