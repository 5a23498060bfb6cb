"""What a plan will cost: how much is there already, and how many hours the rest will take."""

import os
import statistics
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lmsweep.processes import call_each
from lmsweep.provenance import machine_name
from lmsweep.store.job import Job
from lmsweep.store.store import Store
from lmsweep.sweep.plan import Plan, Slot, State
from lmsweep.sweep.progress import duration, probing

ENOUGH = 5  # measurements that say how much durations differ
UNSURE = 0.3  # fewer of them, or a probe, may be off by this part


@dataclass(frozen=True)
class Seconds:
    """How long work takes, and between which values that lies."""

    likely: float
    low: float
    high: float

    @classmethod
    def of(cls, measured: Sequence[float]) -> "Seconds":
        """What measurements say: their median, and the middle 80% of them."""
        likely = statistics.median(measured)
        if len(measured) < ENOUGH:
            return cls(likely, min(*measured, (1 - UNSURE) * likely), max(*measured, (1 + UNSURE) * likely))
        tenths = statistics.quantiles(measured, n=10, method="inclusive")
        return cls(likely, tenths[0], tenths[-1])

    @classmethod
    def total(cls, parts: Iterable["Seconds"], times: Iterable[float]) -> "Seconds":
        """The sum, each part so many times. Ends are added up as well, because a slow day is slow for all."""
        weighted = list(zip(parts, times, strict=True))
        return cls(*(sum(w * getattr(p, end) for p, w in weighted) for end in ("likely", "low", "high")))

    def hours(self) -> str:
        """`3.2 (2.9 to 3.8)` hours."""
        likely, low, high = (_hours(seconds / 3600) for seconds in (self.likely, self.low, self.high))
        return f"{likely} ({low} to {high})"


def past_seconds(store: Store) -> dict[str, Seconds]:
    """What the finished runs of each cost key took on this machine, or on one that they do not name."""
    seconds: dict[str, list[float]] = {}
    for _, results in store.entries().values():
        known = results is not None and "cost_key" in results
        if results is not None and known and results.get("machine", machine_name()) == machine_name():
            seconds.setdefault(results["cost_key"], []).append(results["seconds"])
    return {key: Seconds.of(values) for key, values in seconds.items()}


def estimate(plan: Plan, names: Sequence[str], slots: Sequence[Slot]) -> dict[str, Seconds]:
    """Seconds of each of these jobs, from past ones or, where there are none, from a short probe.

    A job whose probe fails is left out, and the reason said: a run may diverge, or its data may not be there.
    """
    known: Mapping[str, Seconds] = past_seconds(plan.store)
    costs = {name: plan.jobs[name].cost for name in names}
    unknown = {cost: plan.jobs[name].probe for name, cost in costs.items() if cost not in known}
    probes = {cost: probe for cost, probe in unknown.items() if probe is not None}
    if probes:
        with probing(len(probes)) as ended:
            ends = call_each(slots, probes, log=Path(os.devnull), preload=plan.preload, on_end=ended)
        failed = [end.error or end.died for end in ends.values() if end.error or end.died]
        for reason in dict.fromkeys(map(str, failed)):
            print(f"A run that was to be timed ended: {reason}", file=sys.stderr, flush=True)
        probed = {key: Seconds.of([end.value]) for key, end in ends.items() if not (end.error or end.died)}
        known = {**known, **probed}
    return {name: known[cost] for name, cost in costs.items() if cost in known}


def cost(jobs: Mapping[str, Job], seconds: Mapping[str, Seconds]) -> Seconds:
    """What jobs cost together: seconds of a core, or of a GPU where they use GPUs."""
    needs = [jobs[name].needs for name in seconds]
    processors = [float(need.threads * need.devices * need.nodes) for need in needs]
    return Seconds.total(seconds.values(), processors)


def describe(
    plan: Plan,
    states: Mapping[str, State],
    slots: Sequence[Slot] = ({},),
    figures: Mapping[str, Collection[str]] | None = None,
) -> str:
    """The grid as a table by method, of each of several figures: what is missing, and what that costs."""
    missing = [name for name, state in states.items() if state == "missing"]
    seconds = estimate(plan, missing, slots)
    device = "GPU" if "CUDA_VISIBLE_DEVICES" in slots[0] else "core"
    several = figures if figures and len(figures) > 1 else None
    head = ("cells", "runs", "cached", "failed", "to train", "steps", "each", f"{device} hours")
    table = Table(*(("figure", "method") if several else ("method",)), box=None)
    for column in head:
        table.add_column(column, justify="right")
    groups: dict[tuple[str, ...], list[str]] = {}
    for figure, names in (several or {"": plan.jobs}).items():
        for name in names:
            method = str(plan.jobs[name].about["method"])
            groups.setdefault((figure, method) if several else (method,), []).append(name)
    for words, names in [*groups.items(), (("all", "") if several else ("all",), list(plan.jobs))]:
        table.add_row(*words, *_row(plan.jobs, {name: states[name] for name in names}, seconds))
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(table)
    repeats = len(plan.asked) - len(plan.jobs)
    unknown = len(missing) - len(seconds)
    and_more = f", and {unknown} that could not be estimated" if unknown else ""
    wall = _wall({name: one.likely for name, one in seconds.items()}, len(slots))
    return (
        f"{captured.get()}{len(plan.asked)} jobs, {repeats} of them repeats. "
        f"To train: {len(missing)} of {len(plan.jobs)} runs, about {duration(wall)} "
        f"on {len(slots)} process{'es' * (len(slots) > 1)}{and_more}."
    )


def _row(jobs: Mapping[str, Job], states: Mapping[str, State], seconds: Mapping[str, Seconds]) -> list[str]:
    found = list(states.values())
    left = [name for name, state in states.items() if state == "missing"]
    known = {name: seconds[name] for name in left if name in seconds}
    counts = (len({jobs[name].cell for name in states}), len(states))
    counted = [str(n) for n in (*counts, *(found.count(s) for s in ("done", "failed", "missing")))]
    steps = f"{sum(jobs[name].steps for name in left):,}"
    if not known:
        return [*counted, steps, *("?" if left else "-" for _ in range(2))]
    each = statistics.mean(one.likely for one in known.values())
    return [*counted, steps, duration(each), cost(jobs, known).hours()]


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{hours:.1g}"


def _wall(seconds: Mapping[str, float], workers: int) -> float:
    """How long it takes when the runs go to the next free worker, in order."""
    busy = [0.0] * workers
    for value in seconds.values():
        first = busy.index(min(busy))
        busy[first] += value
    return max(busy)
