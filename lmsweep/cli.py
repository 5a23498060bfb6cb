"""The command line: Hydra composes, the schema checks, `execute` does the work."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel

from lmsweep.config import RunConfig, parse
from lmsweep.errors import ConfigError, UserError
from lmsweep.explain import hydra_error
from lmsweep.sweep.execute import execute


def config_folder() -> str:
    """conf/ of this checkout, or the copy inside an installed package."""
    here = Path(__file__).resolve().parent
    installed = here / "conf"
    return str(installed if installed.is_dir() else here.parent / "conf")


def main() -> None:
    """Entry point of `python -m lmsweep`."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that `reported` can explain
    reported(hydra.main(version_base="1.3", config_path=config_folder(), config_name="config")(_task))


def reported(function: Callable[[], Any], schema: type[BaseModel] = RunConfig) -> None:
    """Call `function`; turn errors meant for the user into one sentence and an exit status."""
    try:
        function()
    except KeyboardInterrupt:
        _stop("Stopped; the same command goes on from the last checkpoint.", 130)
    except ConfigError as error:
        _stop(str(error), 2)
    except UserError as error:
        _stop(str(error), 1)
    except (HydraException, OmegaConfBaseException) as error:
        _stop(hydra_error(schema, error), 2)
    except OSError as error:
        # Inside a run it would be that run's failure; here a folder or file of the store cannot be used.
        _stop(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.", 1)


def _task(config: DictConfig) -> None:
    # Caught here, because Hydra prints a line of its own about any error that leaves a job.
    reported(lambda: _run(config))


def _run(config: DictConfig) -> None:
    plain = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    folder, results = execute(parse(plain))
    metrics = results["metrics"]
    print(
        f"{folder.path}  validation {metrics['val_accuracy']:.2%}  test {metrics['test_accuracy']:.2%}",
        flush=True,
    )


def _stop(sentence: str, status: int) -> None:
    print(sentence, file=sys.stderr, flush=True)
    sys.exit(status)
