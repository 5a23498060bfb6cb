"""`python -m benchmarks [ROW]`: measure all rows, or those whose name contains ROW or fits it as a pattern.

Writes outputs/bench/<module>.json and table.md, prints the table, and fails with the names of rows that miss
their bars (benchmarks/bars.py). Each process uses one thread. `--publish` also puts the rows into the
committed results/bench.json, which the claims of figures about costs read.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

from benchmarks import harness


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("row", nargs="?", default="", help="part of a row's name, or a pattern")
    parser.add_argument("--publish", action="store_true", help="write the rows into results/bench.json, too")
    options = parser.parse_args(arguments)
    rows = harness.chosen_rows(options.row)
    if not rows:
        print(f"No row is called {options.row!r}; there are:", *harness.BARS, sep="\n  ", file=sys.stderr)
        return 2
    folder = Path(os.environ.get("LMSWEEP_OUTPUTS", "outputs")) / "bench"
    began = time.perf_counter()
    everything: list[harness.Measured] = []
    for name, found, seconds in harness.measure(rows):
        wanted = [one for one in found if one.row in rows]
        harness.write(folder, name, found, seconds)
        if options.publish:
            harness.publish(wanted)
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        everything += wanted
    harness.show(everything)
    if not options.row:
        (folder / "table.md").write_text(harness.markdown(everything))
    sentences = harness.missed(everything, rows)
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    print(f"{len(rows)} rows in {time.perf_counter() - began:.0f} s; {folder}", flush=True)
    return int(bool(sentences))


if __name__ == "__main__":
    sys.exit(main())
