"""`lmsweep store gc | rm | export`: house-keeping in the store."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lmsweep.commands.common import outputs_argument, reported
from lmsweep.errors import UserError
from lmsweep.store.housekeeping import collect_garbage, export, remove


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
        files, size = collect_garbage(options.outputs, dry_run=options.dry_run)
        return f"{files} files {would}deleted, {size / 1e6:.1f} MB"
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
