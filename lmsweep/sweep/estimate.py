"""What a plan will cost: how much is there already, and how long the rest will take."""

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lmsweep.processes import call_each
from lmsweep.store.store import Store
from lmsweep.sweep.devices import Slot, preload_for
from lmsweep.sweep.plan import Plan, State
from lmsweep.sweep.progress import duration


def past_seconds(store: Store) -> dict[str, float]:
    """The median duration of the finished runs of each cost key."""
    seconds: dict[str, list[float]] = {}
    for _, results in store.entries().values():
        if results is not None and "cost_key" in results:
            seconds.setdefault(results["cost_key"], []).append(results["seconds"])
    return {key: statistics.median(values) for key, values in seconds.items()}


def estimate(plan: Plan, names: Sequence[str], slots: Sequence[Slot]) -> dict[str, float]:
    """Seconds of each of these jobs, from past ones or, where there are none, from a short probe.

    A job whose probe fails is left out: a run may diverge, or not fit together, and training it will tell.
    """
    known: Mapping[str, float] = past_seconds(plan.store)
    costs = {name: plan.jobs[name].cost for name in names}
    unknown = {cost: plan.jobs[name].probe for name, cost in costs.items() if cost not in known}
    probes = {cost: probe for cost, probe in unknown.items() if probe is not None}
    if probes:
        ends = call_each(slots, probes, log=Path(os.devnull), preload=preload_for(plan))
        known = {**known, **{key: end.value for key, end in ends.items() if not (end.error or end.died)}}
    return {name: known[cost] for name, cost in costs.items() if cost in known}


def describe(plan: Plan, states: Mapping[str, State], slots: Sequence[Slot] = ({},)) -> str:
    """The grid as a table by method, with what is there, what is missing and how long that will take."""
    missing = [name for name, state in states.items() if state == "missing"]
    seconds = estimate(plan, missing, slots)
    table = Table("method", "cells", "runs", "cached", "failed", "to train", "each", "all", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    groups: dict[str, list[str]] = {}
    for name, job in plan.jobs.items():
        groups.setdefault(str(job.about["method"]), []).append(name)
    for method, names in [*groups.items(), ("all", list(plan.jobs))]:
        mine = [states[name] for name in names]
        cells = {plan.jobs[name].cell for name in names}
        times = [seconds[name] for name in names if name in seconds]
        each = duration(statistics.mean(times)) if times else "?" if "missing" in mine else "-"
        counts = [str(mine.count(state)) for state in ("done", "failed", "missing")]
        table.add_row(method, str(len(cells)), str(len(names)), *counts, each, duration(sum(times)))
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(table)
    repeats = len(plan.asked) - len(plan.jobs)
    unknown = len(missing) - len(seconds)
    and_more = f", and {unknown} that could not be estimated" if unknown else ""
    return (
        f"{captured.get()}{len(plan.asked)} jobs, {repeats} of them repeats. "
        f"To train: {len(missing)} of {len(plan.jobs)} runs, about {duration(_wall(seconds, len(slots)))} "
        f"on {len(slots)} process{'es' * (len(slots) > 1)}{and_more}."
    )


def _wall(seconds: Mapping[str, float], workers: int) -> float:
    """How long it takes when the runs go to the next free worker, in order."""
    busy = [0.0] * workers
    for value in seconds.values():
        first = busy.index(min(busy))
        busy[first] += value
    return max(busy)
