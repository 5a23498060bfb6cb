"""The files beside a figure: the JSON with what was asked, trained, chosen and said; the CSV with its table.

The JSON has one schema for those who write it and all who read it. `lmsweep store gc` alone reads a record
without the schema, because the store knows nothing of figures: it takes `runs`. Tables are made from points,
and compared with expected ones.
"""

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from lmsweep.config.sweeps import paper_order
from lmsweep.figures.select import WEIGHTS, told
from lmsweep.figures.spec import FigureSpec, Reference
from lmsweep.figures.statistics import ENOUGH_SEEDS, RULE, Cells, Verdict, interval, x_key
from lmsweep.figures.words import text
from lmsweep.files import DamagedError, digest, read_json, write_atomically, write_json

SCALES = ("smoke", "laptop", "workstation", "paper")  # small ones first


class _Part(BaseModel):
    # A later version may write further keys, which this version does not show.
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Selection(_Part):
    """How hyperparameters and weights were chosen."""

    rule: str
    checkpoint: str
    sentence: str


class Missing(_Part):
    """A cell of the grid without a number."""

    panel: str
    method: str
    x: float
    reason: str


class Selected(_Part):
    """The hyperparameters chosen for one cell, and the runs that have them."""

    panel: str
    method: str
    x: float
    hyperparameters: dict[str, Any]
    val_accuracy: float
    runs: list[str]


class JudgedClaim(_Part):
    """A claim of the paper beside what we found."""

    id: str
    says: str
    where: str
    kind: str
    verdict: Verdict
    ours: str
    paper: str
    n: int
    scale: str


class ClaimRow(NamedTuple):
    """A claim as a row of text; who shows fewer columns leaves some out."""

    verdict: str
    says: str
    where: str
    paper: str
    ours: str
    n: str


HEAD = ClaimRow("verdict", "the paper says", "where", "paper", "ours", "n")


def claim_rows(claims: Iterable[JudgedClaim]) -> list[ClaimRow]:
    """One row per claim: for the terminal, the Markdown page, the HTML report and W&B's report."""
    return [ClaimRow(*(text(getattr(claim, key)) for key in ClaimRow._fields)) for claim in claims]


class Audit(_Part):
    """Whether the robustness of a run is real."""

    method: str
    run: str
    verdict: str
    reasons: list[str]


class Record(_Part):
    """One figure at one scale; the file has these keys in this order."""

    figure: str
    scale: str
    title: str
    paper: str
    question: str
    command: str
    provenance: dict[str, Any]
    training: dict[str, Any]  # what the runs took, and on which machines
    selection: Selection
    intervals: str  # how they were made; "bootstrap" in records of the old rule, which are too narrow
    runs: list[str]
    evaluations: list[str]
    seeds: list[int]
    pilot_seeds: list[int] = []  # those that chose the settings and are in no mean; none where all seeds did
    trained: int
    missing: list[Missing]
    selected: list[Selected]
    claims: list[JudgedClaim]
    audit: list[Audit]
    references: list[Reference]
    table: str = ""  # the checksum of the CSV beside the record

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many claims have each verdict."""
        return Counter(claim.verdict for claim in self.claims)


def build_record(
    spec: FigureSpec, points: pd.DataFrame, table: pd.DataFrame, *, halving: int | None = None, **rest: Any
) -> Record:
    """Everything about a figure but its picture: the same store gives the same record.

    `points` are the selected ones; a table without the column `selected` (distances) has no choice to tell.
    `rest` has the keys that do not follow from the figure's file, its points and its table.
    """
    return Record.model_validate(
        {
            "figure": spec.name,
            **{key: getattr(spec, key) for key in ("title", "paper", "question", "references")},
            "selection": {
                "rule": spec.selection,
                "checkpoint": spec.checkpoint,
                "sentence": " ".join(
                    [*told(spec.selection, rest["pilot_seeds"], halving), WEIGHTS[spec.checkpoint]]
                ),
            },
            "intervals": RULE,
            "runs": sorted(set(points["run"])),
            "seeds": sorted({int(seed) for seed in points["seed"]}),
            "selected": _selected(table) if "selected" in table else [],
            **rest,
        }
    )


def _selected(table: pd.DataFrame) -> list[dict[Hashable, Any]]:
    chosen = table[["panel", "method", "x"]].assign(
        hyperparameters=table["setting"].map(json.loads),
        val_accuracy=table["val"],
        runs=table["selected"].str.split(),
    )
    return chosen.to_dict("records")


def write_record(record: Record, path: Path) -> None:
    """Write the record in one step, with the checksum of the CSV that is there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = path.with_suffix(".csv")
    known = {"table": digest(table.read_bytes())} if table.is_file() else {}
    write_json(path, {**record.model_dump(), **known})


def read_record(path: Path) -> Record:
    """Read what `write_record` wrote; a damaged file is an error that says how to make it again."""
    scale = path.parent.name
    again = f"draw it again with `make reproduce-figure FIG={path.stem} SCALE={scale}`"
    try:
        record = Record.model_validate(read_json(path, again))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DamagedError(path, f"{where}: {first['msg']}", again) from None
    if (record.figure, record.scale) != (path.stem, scale):
        raise DamagedError(path, f"by its content it is {record.figure} at {record.scale} scale", again)
    return record


def read_records(folder: Path, damaged: list[str] | None = None) -> dict[Path, Record]:
    """All records in <folder>/<scale>/, by their files: in the paper's order, small scales first.

    `damaged` gets a sentence about every record that cannot be read; without it, the first one is an error.
    """
    paths = [path for path in folder.glob("*/*.json") if not path.name.startswith(".")]
    found = {}
    for path in sorted(paths, key=_order):
        try:
            found[path] = read_record(path)
        except DamagedError as error:
            if damaged is None:
                raise
            damaged.append(str(error))
    return found


def _order(path: Path) -> tuple[tuple[float, str], int, str]:
    scale = path.parent.name
    return paper_order(path.stem), SCALES.index(scale) if scale in SCALES else len(SCALES), scale


COLUMNS = ["method", "x", "mean", "low", "high", "n", "selected", "panel", "setting", "val", "values"]
# Absolute for accuracies; relative for what is larger than 1, as distances are. Processors round differently,
# and a few hundred steps of training can turn that into as much as another seed would change: digits with 80%
# noise gave 32% instead of 16% in one of three runs. So means may also differ by half the diagonal of both
# intervals' widths; of means over three seeds that measure the same, 1% are further apart.
MEAN_TOLERANCE = 0.02
_FLOATS = ("x", "step", "mean", "low", "high", "val")
_KEYS = ("panel", "method", "x", "layer", "split", "step")


def aggregate(points: pd.DataFrame) -> pd.DataFrame:
    """One row per panel, method and x of selected points; points without a y are left out."""
    rows = []
    finite = points[points["y"].notna()].sort_values(["panel", "method", "x", "seed"])
    for key, cell in finite.groupby(["panel", "method", "x"]):
        panel, method, x = str(key[0]), str(key[1]), float(cell["x"].iloc[0])
        if cell["seed"].duplicated().any():
            raise ValueError(f"{panel}/{method}/{x}: a seed is there twice; select a setting first")
        y = cell["y"].to_numpy(dtype=float)
        low, high = interval(y)
        numbers = (float(y.mean()), low, high, len(y))
        chosen = (" ".join(cell["run"]), panel, cell["setting"].iloc[0], float(cell["val"].mean()))
        values = " ".join(f"{value + 0.0:.6g}" for value in y)  # of the selected runs, in their order
        rows.append((method, x, *numbers, *chosen, values))
    return pd.DataFrame(rows, columns=COLUMNS)


def ordered(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """The rows in the order of the figure: panels, methods as the legend names them, x."""
    pairs = list(zip(table["panel"], table["method"], strict=True))
    unknown = sorted(set(pairs) - spec.ranks.keys())
    if unknown:
        raise ValueError(f"{spec.name} has no panel and method {unknown[0]}")
    ranked = table.assign(rank=[spec.ranks[pair] for pair in pairs]).sort_values(["rank", "x"], kind="stable")
    return ranked.drop(columns="rank").reset_index(drop=True)


def missing(points: pd.DataFrame, spec: FigureSpec, expected: Cells) -> Cells:
    """The `expected` cells without a point that has a y, in the figure's order."""
    finite = points[points["y"].notna()]
    there = set(zip(finite["panel"], finite["method"], finite["x"].map(x_key), strict=True))
    cells = {(cell["panel"], cell["method"], x_key(cell["x"])): cell for cell in expected}
    gone = [cell for key, cell in cells.items() if key not in there]
    return sorted(gone, key=lambda cell: (spec.ranks[cell["panel"], cell["method"]], cell["x"]))


def to_csv(table: pd.DataFrame) -> str:
    """The text of the CSV file: six significant digits, and the same bytes for the same numbers."""
    numbers = table.assign(**(table.select_dtypes("float") + 0.0))  # + 0.0: no "-0"
    return numbers.to_csv(index=False, lineterminator="\n", float_format="%.6g", na_rep="nan")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write the table in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_csv(table))


def read_csv(path: Path | str | StringIO) -> pd.DataFrame:
    """Read what `write_csv` wrote. Run ids stay text: some of them, as 123456e78901, look like numbers."""
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    types = {**dict.fromkeys(_FLOATS, float), "n": int}
    return text.astype({name: types[name] for name in text.columns if name in types})


def differences(
    found: pd.DataFrame, expected: pd.DataFrame, mean_tolerance: float = MEAN_TOLERANCE
) -> list[str]:
    """One sentence for everything that differs: cells and n exactly, means by more than is allowed.

    Allowed are the tolerance and what both intervals over seeds say together, whichever is more.
    """
    keys = [key for key in _KEYS if key in expected.columns]
    for name in [*keys, "mean", "n"]:
        for table, which in ((found, "found"), (expected, "expected")):
            if name not in table.columns:
                return [f"The {which} table has no column {name}."]
    ours, theirs = (_cells(table, keys) for table in (found, expected))
    sentences = [f"{cell}: expected, but not found." for cell in theirs if cell not in ours]
    sentences += [f"{cell}: found, but not expected." for cell in ours if cell not in theirs]
    for cell in (cell for cell in ours if cell in theirs):
        (mean, n, width), (wanted, wanted_n, wanted_width) = ours[cell], theirs[cell]
        allowed = max(mean_tolerance * max(1.0, abs(wanted)), math.hypot(width, wanted_width) / 2)
        if n != wanted_n:
            sentences.append(f"{cell}: n is {n}, expected {wanted_n}.")
        close = abs(mean - wanted) <= allowed  # false with nan
        both_nan = mean != mean and wanted != wanted
        if not close and not both_nan:
            sentences.append(f"{cell}: mean is {mean:.6g}, expected {wanted:.6g} within {allowed:.2g}.")
    return sentences


def _cells(table: pd.DataFrame, keys: list[str]) -> dict[str, tuple[float, int, float]]:
    """The mean, n and width of the interval of every cell."""
    cells: dict[str, tuple[float, int, float]] = {}
    for row in table.to_dict("records"):
        texts = [f"{row[key]:.6g}" if isinstance(row[key], float) else row[key] for key in keys]
        name = ", ".join(f"{key} {text}" for key, text in zip(keys, texts, strict=True))
        if name in cells:
            raise ValueError(f"{name} is there twice")
        known = "low" in row and row["n"] >= ENOUGH_SEEDS  # with fewer, nobody knows how much seeds differ
        cells[name] = row["mean"], row["n"], row["high"] - row["low"] if known else 0.0
    return cells
