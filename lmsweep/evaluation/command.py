"""A command over stored runs: ids first, then Hydra's key=value."""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import hydra
from omegaconf import DictConfig, OmegaConf

from lmsweep.cli import config_folder, reported
from lmsweep.evaluation.config import StoredRunsConfig, parse_as

C = TypeVar("C", bound=StoredRunsConfig)


def command(config_name: str, schema: type[C], work: Callable[[C], None]) -> None:
    """Compose conf/<config_name>.yaml with the command line, check it against `schema`, call `work`."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that `reported` can explain
    sys.argv = [sys.argv[0], *hydra_arguments(sys.argv[1:])]

    def task(config: DictConfig) -> None:
        plain = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
        # Caught here, because Hydra prints a line of its own about any error that leaves a job.
        reported(lambda: work(parse_as(schema, plain)), schema)

    main = hydra.main(version_base="1.3", config_path=config_folder(), config_name=config_name)
    reported(main(task), schema)


def hydra_arguments(arguments: list[str]) -> list[str]:
    """Turn what is neither key=value nor an option into the key `runs`."""
    runs = [word for word in arguments if "=" not in word and word[:1] not in ("-", "~", "+")]
    others = [word for word in arguments if word not in runs]
    if not runs:
        return others
    quoted = ",".join("'" + run.replace("\\", "\\\\").replace("'", "\\'") + "'" for run in runs)
    return [*others, f"runs=[{quoted}]"]
