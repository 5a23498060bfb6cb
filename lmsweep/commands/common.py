"""What all commands share: the store they look at, and errors as sentences with an exit status."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from lmsweep.errors import ConfigError, UserError
from lmsweep.processes import interrupted_by


def outputs_argument(parser: argparse.ArgumentParser) -> None:
    """Add --outputs, by default the folder that training writes to."""
    default = Path(os.environ.get("LMSWEEP_OUTPUTS") or "outputs")
    parser.add_argument("--outputs", type=Path, default=default, help=f"the store (default {default})")


def reported(
    function: Callable[[], Any],
    explain: Callable[[Exception], str | None] = lambda _: None,
    stopped: str = "Stopped.",
) -> None:
    """Call `function`; turn errors meant for the user into one sentence and an exit status.

    `explain` may know a sentence for further errors, which are then about what the user typed. `stopped` is
    said after Ctrl-C.
    """
    try:
        function()
    except KeyboardInterrupt:
        stop(stopped, 128 + interrupted_by())
    except ConfigError as error:
        stop(str(error), 2)
    except UserError as error:
        stop(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has read enough
    except Exception as error:
        sentence = explain(error)  # first of all, because some of Hydra's errors are OSErrors
        if sentence is not None:
            stop(sentence, 2)
        if not isinstance(error, OSError):
            raise
        # Inside a run it would be that run's failure; here a folder or file of the store cannot be used.
        stop(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.", 1)


def stop(sentence: str, status: int) -> NoReturn:
    """Say why, and end."""
    print(sentence, file=sys.stderr, flush=True)
    sys.exit(status)
