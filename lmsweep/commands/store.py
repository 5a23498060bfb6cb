"""`lmsweep status` says what the store has; `lmsweep store du | gc | rm | ...` keeps house."""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.commands import outputs_argument, parser_of, reported
from lmsweep.config.identity import dotted
from lmsweep.config.run import parse
from lmsweep.errors import ConfigError, UserError
from lmsweep.files import DamagedError
from lmsweep.store.folder import JobFolder
from lmsweep.store.housekeeping import collect_garbage, pack, remove, unpack, usage
from lmsweep.store.store import KINDS, STATES, Row, Store, overview
from lmsweep.store.sweeps import runs_of, states_by_sweep
from lmsweep.sweep.progress import duration, label
from lmsweep.sweep.slurm_jobs import settle_jobs

if TYPE_CHECKING:
    import pandas as pd


SHOWN = 40


@reported()
def status_command(arguments: Sequence[str] | None = None) -> None:
    """Show sweeps and runs by state, with their results."""
    parser = parser_of(status_command, outputs=True)
    parser.add_argument("--sweep", help="only runs of this sweep (a figure's name, or a name listed here)")
    parser.add_argument("--state", choices=STATES, help="only runs in this state")
    parser.add_argument("--failed", action="store_const", const="failed", dest="state", help="--state failed")
    parser.add_argument("--all", action="store_true", help=f"every run, not only {SHOWN}")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    print(_status(parser.parse_args(arguments)), flush=True)


def _status(options: argparse.Namespace) -> str:
    outputs: Path = options.outputs
    with suppress(OSError):  # the store may be read-only
        for kind in KINDS:
            settle_jobs(Store(outputs, kind))
    rows = overview(outputs, runs_of(outputs, options.sweep) if options.sweep else None)
    counted = Counter(row["state"] for row in rows)
    damaged: list[str] = []
    by_sweep = states_by_sweep(outputs, rows, damaged) if not options.sweep else [(options.sweep, counted)]
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
    order = ("running", "queued", "failed", "damaged", "abandoned", "pending", "done")
    chosen.sort(key=lambda row: (order.index(row["state"]), row["run"]))
    shown = chosen if options.all else chosen[:SHOWN]
    lines += [_status_line(row) + _changed(Store(outputs), row) for row in shown]
    if len(shown) < len(chosen):
        lines.append(f"... and {len(chosen) - len(shown)} more; --all shows them")
    return "\n".join(lines).rstrip()


def _changed(store: Store, row: Row) -> str:
    """Which files the run was trained on, or with, that have other content now."""
    if "content" not in row:
        return ""
    try:
        changed = parse(store.folder(row["run"]).read_config()).changed_content()
    except (OSError, UserError):
        return ""  # the state of the run says what is wrong
    return f"  ({', '.join(changed)} has changed since)" if changed else ""


def _counts(counts: Counter[str]) -> str:
    return "  ".join(f"{counts[state]} {state}" for state in (*STATES, "missing") if counts[state])


def _status_line(row: Row) -> str:
    end = row.get("reason", "")
    if row["state"] == "done":
        end = "  ".join(
            f"{name} {row[key]:.2%}"
            for name, key in (("validation", "val_accuracy"), ("test", "test_accuracy"))
            if isinstance(row.get(key), float | int)
        )
        end += f"  ({row['remarks']})" if "remarks" in row else ""
    elif row["state"] == "running":
        job = f", Slurm job {row['slurm']}" if "slurm" in row else ""
        end = f"for {duration(row['seconds'])}, process {row['pid']} on {row['host']}{job}"
    elif row["state"] == "queued":
        end = f"Slurm job {row['slurm']}"
    return f"{row['run']}  {row['state']:9}  {label(row)}  {end}".rstrip()


@reported()
def store_command(arguments: Sequence[str] | None = None) -> None:
    """Delete, export, pack or unpack what the store has."""
    parser = parser_of(store_command)
    commands = parser.add_subparsers(dest="command", required=True)
    gc = commands.add_parser(
        "gc", help="delete checkpoints that no drawn figure uses, and leftovers of kills"
    )
    rm = commands.add_parser("rm", help="delete runs, with the evaluations of their checkpoints")
    rm.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs")
    rm.add_argument("--failed", action="store_true", help="all failed runs (with --sweep, of that sweep)")
    out = commands.add_parser("export", help="one row per run, with its configuration and results")
    out.add_argument("file", type=Path, help="a .csv or .parquet file")
    into = commands.add_parser("pack", help="write finished runs and evaluations into one archive")
    into.add_argument("archive", type=Path, help="the archive to write, a .zip file")
    into.add_argument("--weights", action="store_true", help="with checkpoints, so that runs can be attacked")
    from_ = commands.add_parser("unpack", help="add the runs of an archive; what is here stays as it is")
    from_.add_argument("archive", type=Path, help="an archive of `lmsweep store pack`")
    used = commands.add_parser("du", help="what takes room, by kind of file and by sweep")
    for command in (gc, rm, out, into, from_, used):
        outputs_argument(command)
    for command in (rm, out, into):
        command.add_argument("--sweep", help="runs of this sweep")
    for command in (gc, rm):
        command.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    print(_store(parser.parse_args(arguments)), flush=True)


def _store(options: argparse.Namespace) -> str:
    if options.command == "export":
        rows = export(options.outputs, options.sweep, options.file)
        return f"{options.file}  {rows} runs"
    if options.command == "du":
        return _usage(options.outputs)
    if options.command == "pack":
        only = runs_of(options.outputs, options.sweep) if options.sweep else None
        runs = pack(options.outputs, options.archive, only, weights=options.weights)
        return f"{options.archive}  {runs} runs, {options.archive.stat().st_size / 1e6:.1f} MB"
    if options.command == "unpack":
        added, kept = unpack(options.archive, options.outputs)
        return f"{options.outputs}  {added} runs and evaluations added, {kept} were there already"
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


def _usage(outputs: Path) -> str:
    kinds, by_sweep = usage(outputs)

    def lines(rows: dict[str, tuple[int, int]], noun: str) -> list[str]:
        ordered = sorted(rows.items(), key=lambda row: (-row[1][1], row[0]))
        return [f"{size / 1e6:10.1f} MB  {name}  ({count} {noun})" for name, (count, size) in ordered]

    total = sum(size for _, size in kinds.values())
    shared = ["", "By sweep, with runs that sweeps share in each of them:"] if by_sweep else []
    return "\n".join(
        [f"{total / 1e6:10.1f} MB  {outputs}", *lines(kinds, "files"), *shared, *lines(by_sweep, "runs")]
    )


def results_table(outputs: Path, only: Iterable[str] | None = None, *, used: bool = False) -> "pd.DataFrame":
    """One row per run, with its configuration as `config.*` columns; `only` these runs when given.

    With `used`, without the keys that a run's method does not use, such as a gamma of cross-entropy.
    """
    import pandas as pd

    store = Store(outputs)
    rows = overview(outputs, only)
    return pd.DataFrame([{**row, **_columns(store.folder(row["run"]), used)} for row in rows])


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


def _columns(folder: JobFolder, used: bool) -> dict[str, Any]:
    try:
        config = folder.read_config()
        with suppress(ConfigError):  # another version of lmsweep wrote the config: all its keys count
            config = parse(config).identity_dict() if used else config
        keys = dotted({"config": config})
    except DamagedError as error:
        return {"state": "damaged", "reason": str(error)}
    return {
        key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in keys.items()
    }
