"""`lmsweep publish --scale laptop`: keep drawn figures in results/, with a page about them."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from lmsweep.commands.common import outputs_argument, reported
from lmsweep.commands.verify import EXPECTED
from lmsweep.errors import UserError
from lmsweep.figures.markdown import results_page, with_overview
from lmsweep.figures.record import read_records
from lmsweep.files import write_atomically

KEPT = (".csv", ".json", ".png")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="lmsweep publish", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIG", help="which ones (default: all that are drawn)")
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--results", type=Path, default=EXPECTED, help="the folder to keep them in")
    outputs_argument(parser)
    options = parser.parse_args(arguments)
    reported(lambda: print(publish(options.outputs, options.results, options.scale, options.figures)))


def publish(outputs: Path, results: Path, scale: str, names: Sequence[str] = ()) -> Path:
    """Copy the figures of a scale, then write the page about all that are kept; return its path.

    Where the README beside the results has a place for the overview of the scale, it is written too.
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
    page = kept / "README.md"
    records = [record for record in read_records(results).values() if record.scale == scale]
    write_atomically(page, results_page(records, scale))
    readme = results.parent / "README.md"
    if readme.is_file():
        text = readme.read_text()
        write_atomically(readme, with_overview(text, scale, f"{results.name}/{scale}", records))
    return page
