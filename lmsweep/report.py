"""`python -m lmsweep.report [--outputs FOLDER]`: all drawn figures on one page that needs no network."""

import argparse
import os
from pathlib import Path

from lmsweep.cli import reported
from lmsweep.figures.report import write_report


def main() -> None:
    """Entry point: write the page and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m lmsweep.report", description=write_report.__doc__)
    # Read by hand rather than as argparse's default, so that an empty variable counts as none.
    default = os.environ.get("LMSWEEP_OUTPUTS") or "outputs"
    parser.add_argument("--outputs", type=Path, default=Path(default), help=f"the store (now {default})")
    outputs = parser.parse_args().outputs
    reported(lambda: print(write_report(outputs), flush=True))


if __name__ == "__main__":
    main()
