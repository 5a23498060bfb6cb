"""What all commands share: their options, and errors as sentences with an exit status."""

import argparse
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


GOES_ON = "Stopped; the same command goes on from the last checkpoint."


def parser_of(command: Callable[..., None], *, scale: str | None = None) -> argparse.ArgumentParser:
    """A parser with the word and the docstring of a command; with `scale`, its default, also --scale."""
    word = command.__name__.removesuffix("_command").replace("_", "-")
    parser = argparse.ArgumentParser(prog=f"lmsweep {word}", description=command.__doc__)
    if scale is not None:
        parser.add_argument("--scale", default=scale, help=f"a name in conf/scale/*/ (default {scale})")
    return parser


def outputs_argument(parser: argparse.ArgumentParser) -> None:
    """Add --outputs, by default the folder that training writes to."""
    default = Path(os.environ.get("LMSWEEP_OUTPUTS") or "outputs")
    parser.add_argument("--outputs", type=Path, default=default, help=f"the store (default {default})")


@contextmanager
def reported(schema: "type[BaseModel] | None" = None) -> Iterator[None]:
    """Turn errors meant for the user, Hydra's too, into one sentence and an exit status.

    `schema` is that of the configuration, which Hydra's errors are about; by default a run's.
    """
    try:
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
    except Exception as error:
        sentence = _hydra_sentence(error, schema)  # first, because some of Hydra's errors are OSErrors
        if sentence is not None:
            _stop(sentence, 2)
        if not isinstance(error, OSError):
            raise
        # Inside a job an OSError is the job's failure; here a folder or file of the store cannot be used.
        _stop(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.", 1)


def _hydra_sentence(error: Exception, schema: "type[BaseModel] | None") -> str | None:
    # Imported here, because commands that only read the store start without Hydra.
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from lmsweep.config.fields import hydra_error
    from lmsweep.config.run import RunConfig

    composing = isinstance(error, HydraException | OmegaConfBaseException)
    return hydra_error(schema or RunConfig, error) if composing else None


def _stop(sentence: str, status: int) -> NoReturn:
    print(sentence, file=sys.stderr, flush=True)
    sys.exit(status)
