"""`lmsweep verify FIG --scale smoke` compares a figure's numbers with the committed ones.

A figure that is not drawn costs up to hours; then one cheap cell of it is trained again and compared.
"""

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lmsweep.commands.common import outputs_argument, reported
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.errors import UserError
from lmsweep.figures.record import read_record
from lmsweep.figures.table import MEAN_TOLERANCE, differences, read_csv
from lmsweep.store.store import Store

EXPECTED = Path(__file__).resolve().parents[2] / "results"


class FigureDiffersError(UserError):
    """The numbers are not the expected ones."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="lmsweep verify", description=__doc__)
    parser.add_argument("figures", nargs="+", metavar="FIG")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="the folder of the committed numbers")
    parser.add_argument(
        "--tolerance", type=float, default=MEAN_TOLERANCE, help=f"of means (default {MEAN_TOLERANCE})"
    )
    parser.add_argument("--jobs", type=int, default=None, help="runs at once (default: one per core or GPU)")
    outputs_argument(parser)
    options = parser.parse_args(arguments)
    reported(lambda: _verify_all(options))


def _verify_all(options: argparse.Namespace) -> None:
    different = []
    for name in options.figures:
        drawn = options.outputs / "figures" / options.scale / f"{name}.csv"
        expected = options.expected / options.scale / f"{name}.csv"
        try:
            if not expected.is_file():
                raise UserError(f"{expected} is missing: there is nothing to compare {name} with.")
            if drawn.is_file():
                _check_jobs(options.outputs, drawn.with_suffix(".json"))
                verify(drawn, expected, options.tolerance)
            else:
                verify_cell(name, options.scale, expected, options.tolerance, options.jobs)
        except UserError as error:
            different.append(str(error))
    if different:
        raise FigureDiffersError("\n".join(different))


def _check_jobs(outputs: Path, record: Path) -> None:
    """Raise when a figure rests on results that were changed after they were measured."""
    if not record.is_file():
        return
    behind = read_record(record)
    for kind, names in (("runs", behind.runs), ("evaluations", behind.evaluations)):
        for status, _ in Store(outputs, kind).entries(names).values():
            if status.get("state") == "damaged":
                raise FigureDiffersError(status["reason"])


def verify(drawn: Path, expected: Path, tolerance: float) -> None:
    """Print that a drawn figure agrees with the expected one, or raise with everything that differs."""
    _compare(str(drawn), read_csv(drawn), read_csv(expected), expected, tolerance)


def verify_cell(name: str, scale: str, expected: Path, tolerance: float, jobs: int | None = None) -> None:
    """Train the cheapest cell of a figure again, in a store of its own, and compare what it gives."""
    from lmsweep.commands.reproduce import reproduce

    wanted = read_csv(expected)
    with tempfile.TemporaryDirectory(prefix="lmsweep-verify-") as folder:
        at_once = [f"hydra.launcher.jobs={jobs}"] if jobs is not None else []
        sweep = cheapest_cell(read_sweep(name, scale, [f"outputs={folder}", *at_once]), wanted)
        method = next(iter(sweep.runs.values())).method_name()
        print(f"{name} is not drawn at {scale}; {len(sweep.runs)} runs of {method} are trained again.")
        reproduce([sweep], tell=False)
        found = read_csv(sweep.drawn.with_suffix(".csv"))
    ids = {run for cell in found["selected"] for run in cell.split()}
    mine = wanted[[set(cell.split()) <= ids for cell in wanted["selected"]]]
    _compare(f"One cell of {name}, trained again", found, mine, expected, tolerance)


def cheapest_cell(sweep: Sweep, expected: pd.DataFrame) -> Sweep:
    """The sweep with no more than the runs behind one expected number: those that train fastest."""
    from lmsweep.figures.make import spec_of

    runs = sweep.runs
    cells = [set(cell.split()) for cell in expected["selected"]]
    known = [cell for cell in cells if cell <= runs.keys()]
    if not known:
        raise UserError(
            f"None of the expected runs of {sweep.name} is in its grid any more: its settings in conf/ or "
            f"sweeps/ have changed since, so make reproduce-figure and commit the new numbers."
        )

    spec = spec_of(sweep)
    # A level line has no point of its own, and black-box attacks need the network they come from.
    levels = any((panel.x.key or "").startswith("margin.") for panel in spec.panels)
    black_box = any("source=xent" in attack.overrides for attack in spec.attacks.values())

    def cost(cell: set[str]) -> tuple[bool | int | str, ...]:
        run = runs[min(cell)]
        incomplete = (levels and not run.method.margin) or (black_box and run.method_name() != "xent")
        trained = run.adversarial.kind != "none"
        return (
            incomplete,
            trained,
            run.method.margin,
            run.margin.layers == "input",
            run.trainer.max_steps,
            min(cell),
        )

    chosen = min(known, key=cost)
    return dataclasses.replace(sweep, runs={name: runs[name] for name in runs if name in chosen})


def _compare(what: str, found: pd.DataFrame, wanted: pd.DataFrame, expected: Path, tolerance: float) -> None:
    different = differences(found, wanted, tolerance)
    if found.empty:
        raise FigureDiffersError(f"{what}: there is no number in it to compare with {expected}.")
    if different:
        raise FigureDiffersError("\n".join([f"{what} differs from {expected}:", *different]))
    near = f"within {tolerance:g}, or the spread of seeds, of {expected}"
    print(f"{what}: {len(found)} cells {near}", flush=True)
