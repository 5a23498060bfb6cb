"""`python -m lmsweep.verify FIG --scale smoke` compares a drawn figure's numbers with the committed ones."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lmsweep.commands import outputs_argument, reported
from lmsweep.errors import UserError
from lmsweep.figures.table import read_csv
from lmsweep.figures.verify import MEAN_TOLERANCE, differences

EXPECTED = Path(__file__).resolve().parent.parent / "results"


class FigureDiffersError(UserError):
    """The numbers are not the expected ones."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lmsweep.verify", description=__doc__)
    parser.add_argument("figures", nargs="+", metavar="FIG")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="the folder of the committed numbers")
    parser.add_argument(
        "--tolerance", type=float, default=MEAN_TOLERANCE, help=f"of means (default {MEAN_TOLERANCE})"
    )
    outputs_argument(parser)
    options = parser.parse_args(arguments)
    reported(lambda: _verify_all(options))


def _verify_all(options: argparse.Namespace) -> None:
    different = []
    for name in options.figures:
        found = options.outputs / "figures" / options.scale / f"{name}.csv"
        try:
            verify(found, options.expected / options.scale / f"{name}.csv", options.tolerance)
        except UserError as error:
            different.append(str(error))
    if different:
        raise FigureDiffersError("\n".join(different))


def verify(found: Path, expected: Path, tolerance: float) -> None:
    """Print that both agree, or raise with everything that differs."""
    for path, remedy in (
        (found, "draw it with make reproduce-figure"),
        (expected, "there is none to compare"),
    ):
        if not path.is_file():
            raise UserError(f"{path} is missing: {remedy}.")
    different = differences(read_csv(found), read_csv(expected), tolerance)
    if different:
        raise FigureDiffersError("\n".join([f"{found} differs from {expected}:", *different]))
    print(f"{found}: {len(read_csv(found))} cells within {tolerance:g} of {expected}", flush=True)


if __name__ == "__main__":
    main()
