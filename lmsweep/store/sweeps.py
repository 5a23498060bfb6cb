"""Which runs belong to which sweep: one small file per sweep that was asked for."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from lmsweep.errors import UserError
from lmsweep.files import DamagedError, read_json, write_json
from lmsweep.provenance import provenance
from lmsweep.store.store import Row, is_id

UNNAMED = "unnamed"  # sweeps over the command line alone
PILOT = "-pilot"  # after the scale of runs that only choose settings: they are in no mean


class Asked(NamedTuple):
    """Which runs were asked for together."""

    sweep: str
    scale: str | None
    runs: list[str]

    @property
    def title(self) -> str:
        """The sweep at its scale."""
        return f"{self.sweep}-{self.scale}" if self.scale else self.sweep

    @property
    def record(self) -> str:
        """The name of the file that says so, made of all that the file says of the sweep."""
        return f"{self.title}-{hashlib.sha256(' '.join(self.runs).encode()).hexdigest()[:8]}"


def record_sweep(outputs: Path, runs: Iterable[str], sweep: str | None, scale: str | None) -> Path:
    """Write down which runs were asked for together; asking again for the same ones changes nothing."""
    asked = Asked(sweep, scale, sorted(runs)) if sweep else Asked(UNNAMED, None, sorted(runs))
    path = outputs / "sweeps" / f"{asked.record}.json"
    try:
        _read(path)
    except (FileNotFoundError, DamagedError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**asked._asdict(), "commit": provenance()["commit"]}, indent=1)
    return path


def read_sweeps(outputs: Path, damaged: list[str] | None = None) -> Iterator[Asked]:
    """What every record says; `damaged` gets a sentence about each that is none."""
    for path in sorted((outputs / "sweeps").glob("*.json")):
        try:
            yield _read(path)
        except DamagedError as error:
            if damaged is not None:
                damaged.append(str(error))


def _read(path: Path) -> Asked:
    remedy = "delete the file, and the same sweep writes it again"
    content = read_json(path, remedy)
    asked = Asked(content.get("sweep", ""), content.get("scale"), content.get("runs", []))
    if not isinstance(asked.runs, list) or not all(map(is_id, asked.runs)) or path.stem != asked.record:
        raise DamagedError(path, "its name and its runs do not fit", remedy)
    return asked


def runs_by_sweep(outputs: Path, damaged: list[str]) -> dict[str, set[str]]:
    """The runs of every sweep at each of its scales; `damaged` is that of `read_sweeps`."""
    found = defaultdict[str, set[str]](set)
    for asked in read_sweeps(outputs, damaged):
        found[asked.title].update(asked.runs)
    return found


def states_by_sweep(outputs: Path, rows: Iterable[Row], damaged: list[str]) -> list[tuple[str, Counter[str]]]:
    """How many runs of each sweep are in which state; runs that were removed count as `missing`.

    `damaged` gets a sentence about every record that cannot be read.
    """
    states = {row["run"]: row["state"] for row in rows}
    merged = sorted(runs_by_sweep(outputs, damaged).items())
    return [(name, Counter(states.get(run, "missing") for run in runs)) for name, runs in merged]


def sweeps_by_run(outputs: Path) -> dict[str, list[tuple[str, str | None]]]:
    """Of every run that a named sweep asked for: the name and the scale of all those sweeps."""
    found = defaultdict[str, set[tuple[str, str | None]]](set)
    for asked in read_sweeps(outputs):
        if asked.sweep != UNNAMED:
            for run in asked.runs:
                found[run].add((asked.sweep, asked.scale))
    return {run: sorted(pairs, key=str) for run, pairs in found.items()}


def sweeps_of(outputs: Path, run: str) -> list[tuple[str, str | None]]:
    """The name and the scale of every named sweep that asked for a run."""
    return sweeps_by_run(outputs).get(run, [])


def own_grids(outputs: Path, figures: Collection[str]) -> dict[str, list[str]]:
    """The runs of every grid that belongs to none of the `figures`: by its name, or by its record.

    A nameless grid all of whose runs another sweep has, too, tells nothing new.
    """
    everything = list(read_sweeps(outputs))
    named, known = defaultdict[str, set[str]](set), set[str]()
    for asked in everything:
        if asked.sweep != UNNAMED:
            named[asked.sweep].update(asked.runs)
            known.update(asked.runs)
    found = {name: runs for name, runs in sorted(named.items()) if name not in figures}
    nameless = [asked for asked in everything if asked.sweep == UNNAMED]
    for asked in sorted(nameless, key=lambda asked: -len(asked.runs)):
        if not known.issuperset(asked.runs):
            found[asked.record] = set(asked.runs)
            known.update(asked.runs)
    return {name: sorted(runs) for name, runs in found.items()}


def runs_of(outputs: Path, wanted: str, *, pilots: bool = True) -> set[str]:
    """The ids of all runs of the sweep `wanted`: its name (at every scale), or the name of one record.

    Without `pilots`, a sweep's name stands for the runs that report.
    """
    found: set[str] = set()
    names = set()
    damaged: list[str] = []
    for asked in read_sweeps(outputs, damaged):
        names |= {asked.sweep, asked.record}
        named = asked.sweep if pilots or not str(asked.scale).endswith(PILOT) else None
        if wanted in (named, asked.title, asked.record):
            found.update(asked.runs)
    if not found:
        known = ", ".join(sorted(names)) or "none"
        told = " ".join(["", *damaged])
        raise UserError(f"There is no sweep {wanted} in {outputs / 'sweeps'}; there are: {known}.{told}")
    return found
