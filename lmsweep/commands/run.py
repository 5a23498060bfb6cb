"""The command line: Hydra composes, the schema checks, `execute` does the work."""

import os
import sys
from collections.abc import Callable
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel

from lmsweep.commands import common
from lmsweep.config.explain import hydra_error
from lmsweep.config.hydra import config_folder
from lmsweep.config.run import RunConfig
from lmsweep.config.sweeps import with_full_scale
from lmsweep.sweep.plugins import register_plugins
from lmsweep.sweep.task import RunTask


def main() -> None:
    """Entry point of `lmsweep`."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that `reported` can explain
    register_plugins()
    # The task catches errors itself too, because Hydra prints a line of its own about any that leaves a job.
    task = RunTask(reported)
    common.stop_on_sigterm()
    hydra_main = hydra.main(version_base="1.3", config_path=config_folder(), config_name="config")(task)

    def call() -> None:
        sys.argv[1:] = shown_resolved(with_full_scale(sys.argv[1:]))
        hydra_main()

    reported(call)


def shown_resolved(arguments: list[str]) -> list[str]:
    """`--cfg job` with `--resolve`, so that it shows the value of a gamma that follows from the norm."""
    for flag in ("--cfg", "-c"):
        if flag in arguments:
            place = arguments.index(flag)
            if arguments[place + 1 : place + 2] == ["job"] and "--resolve" not in arguments:
                return [*arguments[:place], "--resolve", *arguments[place:]]
    return arguments


def reported(function: Callable[[], Any], schema: type[BaseModel] = RunConfig) -> None:
    """Call `function`; turn errors meant for the user, Hydra's too, into a sentence and an exit status."""
    common.reported(function, lambda error: _explain(schema, error))


def _explain(schema: type[BaseModel], error: Exception) -> str | None:
    composing = isinstance(error, HydraException | OmegaConfBaseException)
    return hydra_error(schema, error) if composing else None
