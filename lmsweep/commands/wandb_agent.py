"""`lmsweep wandb-agent choice='method=... key=...' key=value ...`: what W&B's agents call.

It is `lmsweep`, but for `choice`, which stands for the keys that it lists: W&B's grids know no axes
that depend on others, such as a gamma that only margins have.
"""

import sys
from collections.abc import Iterable

from lmsweep.commands.run import main as run

CHOICE = "choice"


def spelled_out(words: Iterable[str]) -> list[str]:
    """The arguments with every choice replaced by the keys in it."""
    found: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        found += value.split() if key == CHOICE else [word]
    return found


def main() -> None:
    """Entry point."""
    sys.argv = [sys.argv[0], *spelled_out(sys.argv[1:])]
    run()
