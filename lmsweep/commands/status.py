"""`lmsweep status`: sweeps and runs by state, with their results."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmsweep.commands.common import outputs_argument, reported
from lmsweep.store.overview import STATES, Row, overview, sweeps
from lmsweep.store.store import Store
from lmsweep.store.sweeps import runs_of
from lmsweep.sweep.progress import duration, label
from lmsweep.sweep.slurm_jobs import settle_jobs

SHOWN = 40


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `lmsweep status`."""
    parser = argparse.ArgumentParser(prog="lmsweep status", description=__doc__)
    outputs_argument(parser)
    parser.add_argument("--sweep", help="only runs of this sweep (a figure's name, or a name listed here)")
    parser.add_argument("--state", choices=STATES, help="only runs in this state")
    parser.add_argument("--failed", action="store_const", const="failed", dest="state", help="--state failed")
    parser.add_argument("--all", action="store_true", help=f"every run, not only {SHOWN}")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    options = parser.parse_args(arguments)
    reported(lambda: print(_answer(options), flush=True))


def _answer(options: argparse.Namespace) -> str:
    outputs: Path = options.outputs
    with suppress(OSError):  # of a store that may only be read
        for kind in ("runs", "evaluations"):
            settle_jobs(Store(outputs, kind))
    rows = overview(outputs, runs_of(outputs, options.sweep) if options.sweep else None)
    counted = Counter(row["state"] for row in rows)
    damaged: list[str] = []
    by_sweep = sweeps(outputs, rows, damaged) if not options.sweep else [(options.sweep, counted)]
    evaluations = [] if options.sweep else overview(outputs, kind="evaluations")
    chosen = [row for row in rows if options.state in (None, row["state"])]
    measured = [row for row in evaluations if options.state in (None, row["state"])]
    if options.json:
        content: dict[str, Any] = {"sweeps": {name: dict(c) for name, c in by_sweep}, "runs": chosen}
        content["evaluations"] = measured
        return json.dumps(content, indent=1)
    lines = [f"{name}  {_counts(counts)}" for name, counts in by_sweep]
    lines.append(f"{len(rows)} runs in {outputs}  {_counts(counted)}")
    if evaluations:
        lines.append(f"{len(evaluations)} evaluations  {_counts(Counter(r['state'] for r in evaluations))}")
    lines += [*damaged, ""]
    # Finished evaluations say nothing in a line that their figures do not say better.
    chosen += [row for row in measured if row["state"] != "done"]
    order = {
        state: place for place, state in enumerate(("running", "queued", "failed", "damaged", "abandoned"))
    }
    chosen.sort(key=lambda row: (order.get(row["state"], len(order)), row["run"]))
    shown = chosen if options.all else chosen[:SHOWN]
    lines += [_line(row) for row in shown]
    if len(shown) < len(chosen):
        lines.append(f"... and {len(chosen) - len(shown)} more; --all shows them")
    return "\n".join(lines).rstrip()


def _counts(counts: Counter[str]) -> str:
    return "  ".join(f"{counts[state]} {state}" for state in (*STATES, "missing") if counts[state])


def _line(row: Row) -> str:
    end = row.get("reason", "")
    if row["state"] == "done":
        end = "  ".join(
            f"{name} {row[key]:.2%}"
            for name, key in (("validation", "val_accuracy"), ("test", "test_accuracy"))
            if isinstance(row.get(key), float | int)
        )
    elif row["state"] == "running":
        job = f", Slurm job {row['slurm']}" if "slurm" in row else ""
        end = f"for {duration(row['seconds'])}, process {row['pid']} on {row['host']}{job}"
    elif row["state"] == "queued":
        end = f"Slurm job {row['slurm']}"
    return f"{row['run']}  {row['state']:9}  {label(row)}  {end}".rstrip()
