"""The words of the command line, their options and their errors: the only place where everything meets."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lmsweep.errors import ConfigError, UserError
from lmsweep.processes import interrupted_by

if TYPE_CHECKING:
    from pydantic import BaseModel

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
GOES_ON = "Stopped; the same command goes on from the last checkpoint."


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


def parser_of(
    command: Callable[..., None], *, scale: str | None = None, outputs: bool = False
) -> argparse.ArgumentParser:
    """A parser with the word and the docstring of a command.

    With `scale`, its default, the command also has --scale; with `outputs`, --outputs.
    """
    word = command.__name__.removesuffix("_command").replace("_", "-")
    parser = argparse.ArgumentParser(prog=f"lmsweep {word}", description=command.__doc__)
    if scale is not None:
        parser.add_argument("--scale", default=scale, help=f"a name in conf/scale/*/ (default {scale})")
    if outputs:
        outputs_argument(parser)
    return parser


def default_outputs() -> Path:
    """The folder that training writes to."""
    return Path(os.environ.get("LMSWEEP_OUTPUTS") or "outputs")


def outputs_argument(parser: argparse.ArgumentParser) -> None:
    """Add --outputs, which names the store."""
    default = default_outputs()
    parser.add_argument("--outputs", type=Path, default=default, help=f"the store (default {default})")


@contextmanager
def reported(schema: "type[BaseModel] | None" = None) -> Iterator[None]:
    """Turn errors meant for the user, Hydra's too, into one sentence and an exit status.

    `schema` is that of the configuration, which Hydra's errors are about; by default a run's.
    """
    # Imported here, so that `lmsweep --help` starts at once.
    from lmsweep.config.fields import explained
    from lmsweep.config.run import RunConfig

    try:
        with explained(schema or RunConfig):
            yield
    except KeyboardInterrupt:
        trains = "dry_run=true" not in sys.argv
        _stop(GOES_ON if trains else "Stopped.", 128 + interrupted_by())
    except ConfigError as error:
        _stop(str(error), 2)
    except UserError as error:
        _stop(str(error), 1)
    except BrokenPipeError:  # the reader, such as `| head`, is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # Inside a job an OSError is the job's failure; here a folder or file of the store cannot be used.
        _stop(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.", 1)


def _stop(sentence: str, status: int) -> NoReturn:
    print(sentence, file=sys.stderr, flush=True)
    sys.exit(status)
