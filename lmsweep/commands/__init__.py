"""The words of the command line: the only place where everything meets."""

import importlib
import os
import sys
from pathlib import Path

# Each word with the file of this folder that has its function, and what the word does.
WORDS = {
    "reproduce": ("reproduce", "train what a figure needs, evaluate, draw, and check the paper's claims"),
    "costs": ("reproduce", "what figures cost at a scale: runs, steps, hours"),
    "figure": ("figures", "draw a figure from what the store has; trains nothing"),
    "verify": ("figures", "compare a figure's numbers with the committed ones"),
    "publish": ("figures", "keep drawn figures in results/, with a page about their claims"),
    "report": ("figures", "all drawn figures on one page"),
    "attack": ("evaluations", "attack stored runs"),
    "audit": ("evaluations", "tell whether a run's robustness is real"),
    "distances": ("evaluations", "compare linearised distances with those that attacks find"),
    "status": ("store", "sweeps and runs by state, with their results"),
    "compare": ("compare", "show what differs between two runs, in keys and in results"),
    "table": ("compare", "the cells of a sweep as a table for a paper: mean, interval, seeds"),
    "store": ("store", "delete, export, pack or unpack what the store has"),
    "dashboard": ("wandb", "build a W&B workspace and a report for a figure"),
    "sync": ("wandb", "upload to W&B what was recorded offline"),
    "wandb-sweep": ("wandb", "write a sweep as one that W&B's agents can run"),
    "wandb-agent": ("wandb", "what W&B's agents call for each run"),
}
HELP = """lmsweep key=value ...        one run
lmsweep -m key=a,b ...       a sweep: every combination of the values
lmsweep WORD ...             a command; `lmsweep WORD --help` says more:

"""


def main() -> None:
    """Entry point of `lmsweep`: a word is its own command, anything else is for Hydra: a run or a sweep."""
    # As `python -m lmsweep` does, so that `model._target_=mine.Net` finds mine.py in this folder.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in ("--help", "-h"):
        print(HELP + "".join(f"  lmsweep {word:<12} {about}\n" for word, (_, about) in WORDS.items()))
    # The shell asks what can come next; Hydra knows only keys.
    if word == "-sc" and "COMP_LINE" in os.environ:
        first, *more = os.environ["COMP_LINE"].split(" ")[1:] or [""]
        if first in WORDS:
            return
        if not more:
            print(*(word for word in WORDS if word.startswith(first)))
    if word in WORDS:
        sys.argv = [f"{sys.argv[0]} {word}", *sys.argv[2:]]
        module = importlib.import_module(f"lmsweep.commands.{WORDS[word][0]}")
        getattr(module, f"{word.replace('-', '_')}_command")()
        return
    from lmsweep.commands.run import run_command

    run_command()
