"""`lmsweep report [--outputs FOLDER]`: all drawn figures on one page that needs no network."""

import argparse

from lmsweep.commands.common import outputs_argument, reported
from lmsweep.figures.report.page import write_report


def main() -> None:
    """Entry point: write the page and print where it is."""
    parser = argparse.ArgumentParser(prog="lmsweep report", description=write_report.__doc__)
    outputs_argument(parser)
    outputs = parser.parse_args().outputs
    reported(lambda: print(write_report(outputs), flush=True))
