"""`lmsweep store gc | rm | export`: house-keeping in the store."""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.commands.common import outputs_argument, reported
from lmsweep.config.dotted import dotted
from lmsweep.errors import UserError
from lmsweep.files import DamagedError
from lmsweep.store.folder import JobFolder
from lmsweep.store.housekeeping import collect_garbage, remove
from lmsweep.store.overview import overview
from lmsweep.store.store import Store
from lmsweep.store.sweeps import runs_of

if TYPE_CHECKING:
    import pandas as pd


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `lmsweep store`."""
    parser = argparse.ArgumentParser(prog="lmsweep store", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    gc = commands.add_parser(
        "gc", help="delete checkpoints that no drawn figure uses, and leftovers of kills"
    )
    rm = commands.add_parser("rm", help="delete runs, with the evaluations of their checkpoints")
    rm.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs")
    rm.add_argument("--failed", action="store_true", help="all failed runs (with --sweep, of that sweep)")
    out = commands.add_parser("export", help="one row per run, with its configuration and results")
    out.add_argument("file", type=Path, help="a .csv or .parquet file")
    for command in (gc, rm, out):
        outputs_argument(command)
    for command in (rm, out):
        command.add_argument("--sweep", help="runs of this sweep")
    for command in (gc, rm):
        command.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    reported(lambda: print(_answer(parser.parse_args(arguments)), flush=True))


def _answer(options: argparse.Namespace) -> str:
    if options.command == "export":
        rows = export(options.outputs, options.sweep, options.file)
        return f"{options.file}  {rows} runs"
    would = "would be " if options.dry_run else ""
    if options.command == "gc":
        files, size, damaged = collect_garbage(options.outputs, dry_run=options.dry_run)
        told = [*damaged, "So no checkpoint of a finished run is deleted."] if damaged else []
        return "\n".join([*told, f"{files} files {would}deleted, {size / 1e6:.1f} MB"])
    if not (options.runs or options.failed or options.sweep):
        raise UserError("Nothing to delete: name ids of runs, --failed, or --sweep NAME.")
    runs, evaluations = remove(
        options.outputs,
        names=options.runs,
        sweep=options.sweep,
        failed=options.failed,
        dry_run=options.dry_run,
    )
    return f"{runs} runs and {evaluations} evaluations {would}deleted"


def results_table(outputs: Path, only: Iterable[str] | None = None) -> "pd.DataFrame":
    """One row per run, with its configuration as `config.*` columns; `only` these runs when given."""
    import pandas as pd

    store = Store(outputs)
    rows = overview(outputs, only)
    return pd.DataFrame([{**row, **_columns(store.folder(row["run"]))} for row in rows])


def export(outputs: Path, sweep: str | None, file: Path) -> int:
    """Write the table of results to a file; returns how many rows it has."""
    if file.suffix not in (".csv", ".parquet"):
        raise UserError(f"{file} is not allowed: the file to export to must end in .csv or .parquet.")
    table = results_table(outputs, runs_of(outputs, sweep) if sweep else None)
    # A column of numbers, lists and words (gamma) has no one type; its text has.
    for name in table.columns:
        if table[name].dropna().map(type).nunique() > 1:
            table[name] = table[name].astype(str)
    if file.suffix == ".csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file, index=False)
    return len(table)


def _columns(folder: JobFolder) -> dict[str, Any]:
    try:
        keys = dotted({"config": folder.read_config()})
    except DamagedError as error:
        return {"state": "damaged", "reason": str(error)}
    return {key: json.dumps(value) if isinstance(value, list) else value for key, value in keys.items()}
