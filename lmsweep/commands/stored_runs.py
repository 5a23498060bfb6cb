"""A command over stored runs: ids first, then Hydra's key=value."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import islice
from typing import Any, TypeVar, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lmsweep.commands.run import reported
from lmsweep.config.evaluation import StoredRunsConfig, parse_as
from lmsweep.config.hydra import config_folder
from lmsweep.config.request import Request
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Results
from lmsweep.store.run_job import JobFailedError
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.sweeper import make_launcher, register_plugins

# Options of Hydra whose value is a word of its own.
OPTIONS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--info", "-i", "--experimental-rerun"),
    *("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd"),
)
PLAIN = re.compile(r"[\w./+-]+")  # neither quoted nor a list or a choice, which Hydra has to see as such

C = TypeVar("C", bound=StoredRunsConfig)


def command(config_name: str, schema: type[C], work: Callable[[C], None]) -> None:
    """Compose conf/<config_name>.yaml with the command line, check it against `schema`, call `work`."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that `reported` can explain
    sys.argv = [sys.argv[0], *hydra_arguments(sys.argv[1:])]

    register_plugins()

    def task(config: DictConfig) -> None:
        plain = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
        # Caught here, because Hydra prints a line of its own about any error that leaves a job.
        reported(lambda: work(parse_as(schema, plain)), schema)

    main = hydra.main(version_base="1.3", config_path=config_folder(), config_name=config_name)
    reported(main(task), schema)


def measured(jobs: Sequence[Job]) -> list[tuple[JobFolder, Results]]:
    """Have the configured launcher run what the store lacks; raise the first failure."""
    plan = Plan.of(jobs)
    if plan.missing(Request()):
        launcher = make_launcher(HydraConfig.get().launcher)
        with redirect_stdout(sys.stderr):  # stdout belongs to results
            outcome = launcher.submit(plan, Request())
        if outcome.failures:
            name, why = next(iter(outcome.failures.items()))
            raise JobFailedError(
                f"Evaluation {name} failed: {why} (details in {plan.jobs[name].folder.error})"
            )
    found = [(plan.jobs[name].folder, plan.jobs[name].folder.read_results()) for name in plan.asked]
    return [(folder, results) for folder, results in found if results is not None]


def hydra_arguments(arguments: list[str]) -> list[str]:
    """Turn what is neither key=value nor an option or its value into the key `runs`.

    Ids are quoted, because Hydra takes 1e5 for a number. Options come last, because Hydra's parser loses
    keys after them.
    """
    runs: list[str] = []
    keys: list[str] = []
    options: list[str] = []
    words = iter(arguments)
    for word in words:
        if word.startswith("-"):
            options.append(word)
            if word in OPTIONS_WITH_VALUE:
                options.extend(islice(words, 1))
        elif "=" in word or word[:1] in ("~", "+"):
            key, _, value = word.partition("=")
            keys.append(f"source={_quoted(value)}" if key == "source" and PLAIN.fullmatch(value) else word)
        else:
            runs.append(word)
    if runs:
        keys.append(f"runs=[{','.join(map(_quoted, runs))}]")
    return [*keys, *options]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
