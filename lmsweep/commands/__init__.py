"""The words of the command line, one file each: the only place where everything meets."""

import importlib
import sys

# What each word does; `lmsweep WORD --help` says more. A word is the file of that name in this folder.
WORDS = {
    "reproduce": "train what a figure needs, evaluate, draw, and check the paper's claims",
    "figure": "draw a figure from what the store has; trains nothing",
    "verify": "compare a figure's numbers with the committed ones",
    "publish": "keep drawn figures in results/, with a page about their claims",
    "report": "all drawn figures on one page",
    "attack": "attack stored runs",
    "audit": "tell whether a run's robustness is real",
    "distances": "compare linearised distances with those that attacks find",
    "status": "sweeps and runs by state, with their results",
    "store": "delete or export what the store has",
    "dashboard": "build a W&B workspace and a report for a figure",
    "sync": "upload to W&B what was recorded offline",
    "wandb-sweep": "write a sweep as one that W&B's agents can run",
    "wandb-agent": "what W&B's agents call for each run",
}


HELP = """lmsweep key=value ...        one run
lmsweep -m key=a,b ...       a sweep: every combination of the values
lmsweep WORD ...             a command; `lmsweep WORD --help` says more:

"""


def main() -> None:
    """Entry point of `lmsweep`: a word is its own command, anything else is for Hydra: a run or a sweep."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in ("--help", "-h"):
        print(HELP + "".join(f"  lmsweep {word:<12} {about}\n" for word, about in WORDS.items()))
    if word in WORDS:
        sys.argv = [f"{sys.argv[0]} {word}", *sys.argv[2:]]
        importlib.import_module(f"lmsweep.commands.{word.replace('-', '_')}").main()
        return
    from lmsweep.commands.run import main as run

    run()
