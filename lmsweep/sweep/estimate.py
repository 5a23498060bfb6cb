"""What a sweep will cost: how much is there already, and how long the rest will take."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lmsweep.config.request import Request
from lmsweep.config.run import RunConfig
from lmsweep.store.store import Store
from lmsweep.sweep.cost import cost_key
from lmsweep.sweep.devices import Slot
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.progress import duration
from lmsweep.sweep.tasks import call_each


def past_seconds(store: Store) -> dict[str, float]:
    """The median duration of the finished runs of each cost key."""
    seconds: dict[str, list[float]] = {}
    for folder in store.folders():
        try:
            results = json.loads(folder.results.read_bytes())
        except (FileNotFoundError, json.JSONDecodeError):
            continue  # not finished
        if "cost_key" in results:
            seconds.setdefault(results["cost_key"], []).append(results["seconds"])
    return {key: statistics.median(values) for key, values in seconds.items()}


def estimate(plan: Plan, names: Sequence[str], slots: Sequence[Slot]) -> dict[str, float]:
    """Seconds of each of these runs, from past runs or, where there are none, from a short probe.

    A run whose probe fails is left out: it may diverge, or not fit together, and training it will tell.
    """
    known: Mapping[str, float] = past_seconds(plan.store)
    keys = {name: cost_key(plan.runs[name]) for name in names}
    unknown = {key: name for name, key in keys.items() if key not in known}
    if unknown:
        probes = {key: partial(_probe, plan.runs[name]) for key, name in unknown.items()}
        known = {**known, **call_each(slots, probes, log=Path(os.devnull))[0]}
    return {name: known[key] for name, key in keys.items() if key in known}


def _probe(config: RunConfig) -> float:
    from lmsweep.training.probe import probe_seconds  # imports torch, which only the worker needs

    return probe_seconds(config)


def describe(plan: Plan, request: Request, slots: Sequence[Slot] = ({},)) -> str:
    """The grid as a table by method, with what is there, what is missing and how long that will take."""
    standings = plan.standings(request)
    missing = [name for name, state in standings.items() if state == "missing"]
    seconds = estimate(plan, missing, slots)
    table = Table("method", "cells", "runs", "cached", "failed", "to train", "each", "all", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    groups: dict[str, list[str]] = {}
    for name, config in plan.runs.items():
        groups.setdefault(config.method_name(), []).append(name)
    for method, names in [*groups.items(), ("all", list(plan.runs))]:
        states = [standings[name] for name in names]
        cells = {plan.runs[name].cell for name in names}
        times = [seconds[name] for name in names if name in seconds]
        each = duration(statistics.mean(times)) if times else "?" if "missing" in states else "-"
        counts = [str(states.count(state)) for state in ("cached", "failed", "missing")]
        table.add_row(method, str(len(cells)), str(len(names)), *counts, each, duration(sum(times)))
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(table)
    repeats = len(plan.jobs) - len(plan.runs)
    unknown = len(missing) - len(seconds)
    and_more = f", and {unknown} that could not be estimated" if unknown else ""
    return (
        f"{captured.get()}{len(plan.jobs)} jobs, {repeats} of them repeats. "
        f"To train: {len(missing)} of {len(plan.runs)} runs, about {duration(_wall(seconds, len(slots)))} "
        f"on {len(slots)} process{'es' * (len(slots) > 1)}{and_more}."
    )


def _wall(seconds: Mapping[str, float], workers: int) -> float:
    """How long it takes when the runs go to the next free worker, in order."""
    busy = [0.0] * workers
    for value in seconds.values():
        first = busy.index(min(busy))
        busy[first] += value
    return max(busy)
