"""Exact mode beside first-order mode: time in this process, peak memory in a process of its own for each.

`python -m benchmarks.exact_mode cross-entropy|first-order|exact` makes a few steps and prints its peak.
"""

import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks import steps
from benchmarks.harness import Measured, alternate_steps, ratio, summary

REPEATS = 3
KINDS = {
    "memory, cross-entropy": "cross-entropy",
    "memory, first order, 9 classes": "first-order",
    "memory, exact, 9 classes": "exact",
}


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    setting = steps.mnist()
    for label, top_k in (("9 classes", None), ("best-scored class", 1)):
        row = f"exact_mode/mnist, {label}"
        if row in rows:
            ways = {
                "first": partial(steps.margin, setting, top_k),
                "exact": partial(steps.margin, setting, top_k, exact=True),
            }
            times = alternate_steps(ways, rounds=3)
            yield ratio(row, times["exact"], times["first"], "of a first-order step")
    for name, each in (("mnist", setting), ("wide_resnet", steps.wide_resnet())):
        row = f"exact_mode/{name}, sampled class, of cross-entropy"
        if row in rows:
            ours = partial(steps.margin, each, 1, exact=True, sampled=True)
            times = alternate_steps({"xent": partial(steps.cross_entropy, each), "exact": ours}, rounds=7)
            yield ratio(row, times["exact"], times["xent"])
    wanted = {row: kind for label, kind in KINDS.items() if (row := f"exact_mode/{label}") in rows}
    peaks: dict[str, list[float]] = {row: [] for row in wanted}
    for _ in range(REPEATS):
        for row, kind in wanted.items():
            peaks[row].append(_peak(kind))
    for row, values in peaks.items():
        yield summary(row, values, "MB", "peak of a process, torch included")


def _peak(kind: str) -> float:
    command = [sys.executable, "-m", "benchmarks.exact_mode", kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
    return float(done.stdout)


def _steps(kind: str) -> None:
    torch.set_num_threads(1)
    setting = steps.mnist()
    for _ in range(2):
        if kind == "cross-entropy":
            steps.cross_entropy(setting)
        else:
            steps.margin(setting, None, exact=kind == "exact")
    print(peak_megabytes())


def peak_megabytes() -> float:
    """The most memory this process has had. Linux's ru_maxrss would count its parent's as well."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # macOS counts bytes


if __name__ == "__main__":
    _steps(sys.argv[1])
