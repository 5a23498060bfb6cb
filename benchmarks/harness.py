"""Measure ways of doing the same in turn, compare with the bars, and say by name what misses them."""

import importlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bars import BARS, Bar
from lmsweep.figures.claims import COSTS
from lmsweep.provenance import provenance

RESAMPLES = 2000


@dataclass(frozen=True)
class Measured:
    """A row's value: the median of repeats, with a 95% interval, and what else is worth keeping."""

    row: str
    value: float
    low: float
    high: float
    repeats: int
    unit: str = "x"
    note: str = ""


Times = dict[str, list[float]]


def alternate(
    ways: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """The seconds of each way, measured in turn, so that a busy machine slows all of them alike.

    Every other round goes backwards: no way always comes after the same other one.
    """
    times: Times = {name: [] for name in ways}
    for number in range(-warm_up, rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            started = clock()
            ways[name]()
            seconds = clock() - started
            if number >= 0:
                times[name].append(seconds)
    return times


def alternate_steps(ways: Mapping[str, Callable[[], object]], *, rounds: int) -> Times:
    """The same for steps, in processor time: one thread that never waits, without what other work takes."""
    return alternate(ways, rounds=rounds, clock=time.process_time)


def ratio(row: str, over: Sequence[float], under: Sequence[float], note: str = "") -> Measured:
    """The median of the rounds' ratios: both members of a pair were measured within moments."""
    return summary(row, [a / b for a, b in zip(over, under, strict=True)], note=note)


def import_torch() -> None:
    """Start a process that imports torch: what times that are mostly Python and files are compared with."""
    subprocess.run([sys.executable, "-c", "import torch"], check=True, capture_output=True)


def beside_torch(row: str, times: Times, name: str, note: str = "") -> Measured:
    """The seconds of a way in those of importing torch, both measured by `alternate`."""
    seconds = f"{statistics.median(times[name]):.2f} s"
    return ratio(row, times[name], times["torch"], f"{seconds}, {note}" if note else seconds)


def summary(row: str, values: Sequence[float], unit: str = "x", note: str = "") -> Measured:
    """The median, and the interval that 95% of the medians of resampled values lie in."""
    generator = random.Random(0)  # noqa: S311 - no secret
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]
    return Measured(row, statistics.median(values), low, high, len(values), unit, note)


def chosen_rows(wanted: str | None, bars: Mapping[str, Bar | None] = BARS) -> list[str]:
    """The rows whose name contains `wanted`, or fits it as a pattern; all of them without it."""
    return [row for row in bars if not wanted or wanted in row or fnmatchcase(row, wanted)]


def measure(rows: Sequence[str]) -> Iterator[tuple[str, list[Measured], float]]:
    """Run the modules that the rows belong to: their name, what they measured, and the seconds it took."""
    for name in dict.fromkeys(row.partition("/")[0] for row in rows):
        started = time.perf_counter()
        found = list(importlib.import_module(f"benchmarks.{name}").measure(rows))
        yield name, found, time.perf_counter() - started


def missed(
    measured: Iterable[Measured], rows: Sequence[str], bars: Mapping[str, Bar | None] = BARS
) -> list[str]:
    """A sentence for every row that misses its bar, or that has one and was not measured."""
    found = {one.row: one for one in measured}
    sentences = []
    for row in rows:
        bar = bars[row]
        if row not in found:
            sentences.append(f"{row}: was not measured")
        elif bar and not bar.met(found[row].value):
            one = found[row]
            sentences.append(
                f"{row}: {one.value:.3f} {one.unit} [{one.low:.3f}, {one.high:.3f}] misses its bar {bar}"
            )
    return sentences


def environment() -> dict[str, Any]:
    """What the numbers depend on beside the code."""
    return {
        **provenance(),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }


def write(folder: Path, name: str, measured: Sequence[Measured], seconds: float) -> None:
    """One JSON file per module: its rows with their bars, and where they were measured."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(one), "bar": str(BARS[one.row] or "")} for one in measured]
    content = {"rows": rows, "seconds": seconds, "environment": environment()}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def publish(measured: Sequence[Measured], path: Path = COSTS) -> None:
    """Put rows into the file that claims read, each with the machine and the commit it was measured on."""
    known = json.loads(path.read_text()) if path.exists() else {}
    where = environment()
    known |= {one.row: {**asdict(one), "environment": where} for one in measured}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def table(measured: Iterable[Measured], bars: Mapping[str, Bar | None] = BARS) -> Table:
    """What a terminal shows."""
    shown = Table("row", "value", "95% interval", "n", "bar", "", "", box=None)
    for one in measured:
        bar = bars[one.row]
        verdict = "" if bar is None else ("met" if bar.met(one.value) else "MISSED")
        interval = f"{_short(one.low)} to {_short(one.high)}"
        value = f"{_short(one.value)} {one.unit}"
        shown.add_row(one.row, value, interval, str(one.repeats), str(bar or ""), verdict, one.note)
    return shown


def markdown(measured: Iterable[Measured], bars: Mapping[str, Bar | None] = BARS) -> str:
    """The same for a page."""
    lines = ["| row | value | 95% interval | n | bar | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {one.row} | {_short(one.value)} {one.unit} | {_short(one.low)} to {_short(one.high)} "
        f"| {one.repeats} | {bars[one.row] or ''} | {one.note} |"
        for one in measured
    ]
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(measured: Iterable[Measured]) -> None:
    """Print the table."""
    Console(width=None if os.isatty(1) else 170).print(table(measured))
