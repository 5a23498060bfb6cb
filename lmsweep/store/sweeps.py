"""Which runs belong to which sweep: one small file per sweep that was asked for."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lmsweep.errors import UserError
from lmsweep.files import DamagedError, read_json, write_json
from lmsweep.provenance import provenance
from lmsweep.store.store import Row, is_id

UNNAMED = "unnamed"  # sweeps over the command line alone
PILOT = "-pilot"  # after the scale of runs that only choose settings: they are in no mean


def record_sweep(outputs: Path, runs: Iterable[str], sweep: str | None, scale: str | None) -> Path:
    """Write down which runs were asked for together; asking again for the same ones changes nothing."""
    ids = sorted(runs)
    sweep, scale = (sweep, scale) if sweep else (UNNAMED, None)
    content = {"sweep": sweep, "scale": scale, "commit": provenance()["commit"], "runs": ids}
    path = outputs / "sweeps" / f"{_stem(content)}.json"
    try:
        _read(path)
    except (FileNotFoundError, DamagedError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content, indent=1)
    return path


def read_sweeps(outputs: Path, damaged: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the content of every record; `damaged` gets a sentence about each that is none."""
    for path in sorted((outputs / "sweeps").glob("*.json")):
        try:
            yield path.stem, _read(path)
        except DamagedError as error:
            if damaged is not None:
                damaged.append(str(error))


def _read(path: Path) -> dict[str, Any]:
    remedy = "delete the file, and the same sweep writes it again"
    content = read_json(path, remedy)
    runs = content.get("runs")
    if not isinstance(runs, list) or not all(map(is_id, runs)) or path.stem != _stem(content):
        raise DamagedError(path, "its name and its runs do not fit", remedy)
    return content


def _stem(content: Mapping[str, Any]) -> str:
    """A record's file is named by all that the record says of a sweep."""
    digest = hashlib.sha256(" ".join(content["runs"]).encode()).hexdigest()[:8]
    sweep, scale = content.get("sweep"), content.get("scale")
    return f"{sweep}-{scale}-{digest}" if scale else f"{sweep}-{digest}"


def runs_by_sweep(outputs: Path, damaged: list[str]) -> dict[str, set[str]]:
    """The runs of every sweep at each of its scales; `damaged` is that of `read_sweeps`."""
    found: dict[str, set[str]] = {}
    for _, content in read_sweeps(outputs, damaged):
        name = f"{content['sweep']}-{content['scale']}" if content["scale"] else content["sweep"]
        found.setdefault(name, set()).update(content["runs"])
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
    found: dict[str, set[tuple[str, str | None]]] = {}
    for _, content in read_sweeps(outputs):
        if content["sweep"] != UNNAMED:
            for run in content["runs"]:
                found.setdefault(run, set()).add((content["sweep"], content["scale"]))
    return {run: sorted(pairs, key=str) for run, pairs in found.items()}


def sweeps_of(outputs: Path, run: str) -> list[tuple[str, str | None]]:
    """The name and the scale of every named sweep that asked for a run."""
    return sweeps_by_run(outputs).get(run, [])


def own_grids(outputs: Path, figures: Collection[str]) -> dict[str, list[str]]:
    """The runs of every grid that belongs to none of the `figures`: by its name, or by its record.

    A nameless grid all of whose runs another sweep has, too, tells nothing new.
    """
    named: dict[str, set[str]] = {}
    nameless: dict[str, set[str]] = {}
    for record, content in read_sweeps(outputs):
        name = content["sweep"]
        kind = nameless if name == UNNAMED else named
        kind.setdefault(record if name == UNNAMED else name, set()).update(content["runs"])
    known = {run for runs in named.values() for run in runs}
    found = {name: runs for name, runs in sorted(named.items()) if name not in figures}
    for record, runs in sorted(nameless.items(), key=lambda pair: -len(pair[1])):
        if not runs <= known:
            found[record] = runs
            known |= runs
    return {name: sorted(runs) for name, runs in found.items()}


def runs_of(outputs: Path, wanted: str, *, pilots: bool = True) -> set[str]:
    """The ids of all runs of the sweep `wanted`: its name (at every scale), or the name of one record.

    Without `pilots`, a sweep's name stands for the runs that report.
    """
    found: set[str] = set()
    names = set()
    damaged: list[str] = []
    for name, content in read_sweeps(outputs, damaged):
        names |= {content["sweep"], name}
        named = content["sweep"] if pilots or not str(content["scale"]).endswith(PILOT) else None
        if wanted in (named, f"{content['sweep']}-{content['scale']}", name):
            found |= set(content["runs"])
    if not found:
        known = ", ".join(sorted(names)) or "none"
        told = " ".join(["", *damaged])
        raise UserError(f"There is no sweep {wanted} in {outputs / 'sweeps'}; there are: {known}.{told}")
    return found
