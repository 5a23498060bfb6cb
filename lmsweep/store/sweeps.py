"""Which runs belong to which sweep: one small file per sweep that was asked for."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lmsweep.errors import UserError
from lmsweep.files import write_atomically
from lmsweep.provenance import provenance

UNNAMED = "unnamed"  # sweeps over the command line alone


def record_sweep(outputs: Path, runs: Iterable[str], sweep: str | None, scale: str | None) -> Path:
    """Write down which runs were asked for together; asking again for the same ones changes nothing."""
    ids = sorted(runs)
    digest = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:8]
    sweep, scale = (sweep, scale) if sweep else (UNNAMED, None)
    name = f"{sweep}-{scale}" if scale else sweep
    path = outputs / "sweeps" / f"{name}-{digest}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"sweep": sweep, "scale": scale, "commit": provenance()["commit"], "runs": ids}
        write_atomically(path, json.dumps(content, indent=1) + "\n")
    return path


def read_sweeps(outputs: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the content of every record."""
    for path in sorted((outputs / "sweeps").glob("*.json")):
        yield path.stem, json.loads(path.read_bytes())


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


def runs_of(outputs: Path, wanted: str) -> set[str]:
    """The ids of all runs of the sweep `wanted`: its name (at every scale), or the name of one record."""
    found: set[str] = set()
    names = set()
    for name, content in read_sweeps(outputs):
        names |= {content["sweep"], name}
        if wanted in (content["sweep"], f"{content['sweep']}-{content['scale']}", name):
            found |= set(content["runs"])
    if not found:
        known = ", ".join(sorted(names)) or "none"
        raise UserError(f"There is no sweep {wanted} in {outputs / 'sweeps'}; there are: {known}.")
    return found
