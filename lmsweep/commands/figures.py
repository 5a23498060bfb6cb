"""`lmsweep figure`, `verify`, `publish` and `report`: what is done with the figures of a store."""

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmsweep.commands import parser_of, reported
from lmsweep.commands.store import results_table
from lmsweep.config.sweeps import Sweep, read_sweep, sweep_names
from lmsweep.errors import UserError
from lmsweep.evaluation.jobs import judged
from lmsweep.figures.make import explain, make_figure, spec_of
from lmsweep.figures.pages.live import serve
from lmsweep.figures.pages.markdown import results_page, with_overview
from lmsweep.figures.pages.report import write_report
from lmsweep.figures.record import (
    HEAD,
    MEAN_TOLERANCE,
    Record,
    claim_rows,
    differences,
    read_csv,
    read_record,
    read_records,
)
from lmsweep.files import write_atomically
from lmsweep.provenance import ROOT
from lmsweep.store.housekeeping import pack
from lmsweep.store.store import Store
from lmsweep.store.sweeps import PILOT, own_grids, sweeps_by_run
from lmsweep.tracking.tracker import mirror_figure

STYLES = {"holds": "green", "fails": "red", "not resolved": "yellow", "not run": "dim"}
EXPECTED = ROOT / "results"  # the committed numbers
KEPT = (".csv", ".json", ".png")


@reported()
def figure_command(arguments: Sequence[str] | None = None) -> None:
    """Draw figures from what the store has, or explain one number of them; nothing is trained."""
    parser = parser_of(figure_command, scale="smoke")
    parser.add_argument("words", nargs="+", metavar="FIG", help="figures, and key=value to change their runs")
    parser.add_argument("--explain", nargs=2, metavar=("METHOD", "X"), help="say how one number came about")
    options = parser.parse_intermixed_args(arguments)
    overrides = [word for word in options.words if "=" in word]
    for name in (word for word in options.words if "=" not in word):
        sweep = read_sweep(name, options.scale, overrides)
        if options.explain:
            method, x = options.explain
            try:
                place = float(x)
            except ValueError:
                raise UserError(f"--explain METHOD {x} is not allowed: x must be a number.") from None
            print(*explain(sweep, method, place), sep="\n", flush=True)
        else:
            draw(sweep)


def draw(sweep: Sweep, *, tell: bool = True) -> None:
    """Make a figure from the store and mirror it; with `tell`, print its claims and where it is."""
    picture, record = make_figure(sweep, judged)
    mirror_figure(sweep.tracking, sweep.outputs, record, picture)
    if tell:
        print_claims(record)
        print(picture, flush=True)


def print_claims(record: Record) -> None:
    """The claims with their verdicts, and which cells are missing; the pages also say where in the paper."""
    title = f"{record.figure}, {record.scale} scale: {record.title} ({record.paper})"
    shown = [column for column in HEAD._fields if column != "where"]
    table = Table(*(getattr(HEAD, column) for column in shown), title=title, title_justify="left")
    for row in claim_rows(record.claims):
        texts = {column: Text(getattr(row, column)) for column in shown}
        texts["verdict"].stylize(STYLES[row.verdict])
        table.add_row(*texts.values())
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 140
    console.print(table)
    for remark in record.training.get("remarks", ()):
        console.print(f"{remark}.", soft_wrap=True)
    if record.missing:
        gone = ", ".join(f"{c.method} at {c.x:g} ({c.reason})" for c in record.missing[:5])
        more = f" and {len(record.missing) - 5} more" if len(record.missing) > 5 else ""
        console.print(Text(f"Missing: {gone}{more}."), soft_wrap=True)


class FigureDiffersError(UserError):
    """The numbers are not the expected ones."""


@reported()
def verify_command(arguments: Sequence[str] | None = None) -> None:
    """Compare the numbers of figures with the committed ones.

    A figure that is not drawn costs up to hours; then one cheap cell of it is trained again and compared.
    """
    parser = parser_of(verify_command, scale="smoke", outputs=True)
    parser.add_argument("figures", nargs="+", metavar="FIG")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="the folder of the committed numbers")
    of_means = f"of means (default {MEAN_TOLERANCE})"
    parser.add_argument("--tolerance", type=float, default=MEAN_TOLERANCE, help=of_means)
    parser.add_argument("--jobs", type=int, default=None, help="runs at once (default: one per core or GPU)")
    options = parser.parse_args(arguments)
    different = []
    for name in options.figures:
        drawn = options.outputs / "figures" / options.scale / f"{name}.csv"
        expected = options.expected / options.scale / f"{name}.csv"
        try:
            if not expected.is_file():
                raise UserError(f"{expected} is missing: there is nothing to compare {name} with.")
            if drawn.is_file():
                _check_jobs(options.outputs, drawn.with_suffix(".json"))
                _compare(str(drawn), read_csv(drawn), read_csv(expected), expected, options.tolerance)
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


def verify_cell(name: str, scale: str, expected: Path, tolerance: float, jobs: int | None) -> None:
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
        harder = (run.acquisition.active, run.adversarial.kind != "none", run.method.margin)
        return incomplete, *harder, run.margin.layers == "input", run.trainer.max_steps, min(cell)

    chosen = min(known, key=cost)
    cell = {name: runs[name] for name in runs if name in chosen}
    return dataclasses.replace(sweep, runs=cell, grid=sweep.grid.model_copy(update={"stages": None}))


def _compare(what: str, found: pd.DataFrame, wanted: pd.DataFrame, expected: Path, tolerance: float) -> None:
    """Print that numbers agree with the expected ones, or raise with everything that differs."""
    different = differences(found, wanted, tolerance)
    if found.empty:
        raise FigureDiffersError(f"{what}: there is no number in it to compare with {expected}.")
    if different:
        raise FigureDiffersError("\n".join([f"{what} differs from {expected}:", *different]))
    near = f"within {tolerance:g}, or the spread of seeds, of {expected}"
    print(f"{what}: {len(found)} cells {near}", flush=True)


@reported()
def publish_command(arguments: Sequence[str] | None = None) -> None:
    """Keep drawn figures in results/, with a page about them."""
    parser = parser_of(publish_command, scale="laptop", outputs=True)
    parser.add_argument("figures", nargs="*", metavar="FIG", help="which ones (default: all that are drawn)")
    parser.add_argument("--results", type=Path, default=EXPECTED, help="the folder to keep them in")
    options = parser.parse_args(arguments)
    print(publish(options.outputs, options.results, options.scale, options.figures))


def publish(outputs: Path, results: Path, scale: str, names: Sequence[str] = ()) -> Path:
    """Copy the figures of a scale, then write the page about all that are kept; return its path.

    Where the README beside the results has a place for the overview of all figures, it is written too.
    """
    drawn, kept = outputs / "figures" / scale, results / scale
    chosen = names or sorted(path.stem for path in drawn.glob("*.json"))
    missing = [name for name in chosen if not (drawn / f"{name}.json").is_file()]
    if missing or not chosen:
        what = ", ".join(missing) if missing else "Nothing"
        raise UserError(f"{what}: not drawn in {drawn}; make reproduce-figure does that.")
    kept.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        for suffix in KEPT:
            shutil.copyfile(drawn / f"{name}{suffix}", kept / f"{name}{suffix}")
        if (page := drawn / f"{name}.md").is_file():  # a table of many methods
            shutil.copyfile(page, kept / page.name)
    if scale != "smoke":  # whose runs are trained again in minutes
        _keep_results(outputs, kept, chosen, scale)
    page = kept / "README.md"
    records = list(read_records(results).values())
    write_atomically(page, results_page([record for record in records if record.scale == scale], scale))
    readme = results.parent / "README.md"
    if readme.is_file():
        text = readme.read_text()
        write_atomically(readme, with_overview(text, results.name, records))
    return page


def _keep_results(outputs: Path, kept: Path, figures: Sequence[str], scale: str) -> None:
    """Pack what each figure is drawn from, without weights, so that it can be drawn again on any machine."""
    by_run = sweeps_by_run(outputs)
    for name in figures:
        asked = {(name, scale), (name, scale + PILOT)}
        runs = [run for run, sweeps in by_run.items() if asked & set(sweeps)]
        if runs:
            pack(outputs, kept / f"{name}.zip", runs)


@reported()
def report_command() -> None:
    """Write all drawn figures on one page that needs no network, and print where it is."""
    parser = parser_of(report_command, outputs=True)
    parser.add_argument("--serve", action="store_true", help="show sweeps while they run, on 127.0.0.1 only")
    options = parser.parse_args()
    if options.serve:
        serve(options.outputs)
        return
    own = own_grids(options.outputs, sweep_names())  # those without a figure file
    grids = {name: results_table(options.outputs, runs, used=True) for name, runs in own.items()}
    print(write_report(options.outputs, grids), flush=True)
