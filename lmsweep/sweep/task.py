"""What Hydra calls with a composed configuration: one run, and the line about its result."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from lmsweep.config.request import split
from lmsweep.store.lease import when_free
from lmsweep.sweep.execute import execute
from lmsweep.training.task_ranks import task_of


class RunTask:
    """One run of lmsweep as Hydra's task function; launchers that know it can do more than call it.

    `guard` calls a function and turns its errors into sentences; in a sweep they pass, so that it goes on.
    """

    def __init__(self, guard: Callable[[Callable[[], Any]], None]) -> None:
        self.guard = guard

    def __call__(self, config: DictConfig) -> float | None:
        """Train, or read what is there, print one line, and return the validation accuracy."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        def plain() -> dict[str, Any]:
            return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))

        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return run_one(plain(), wait=True)
        self.guard(lambda: run_one(plain()))
        return None


def run_one(plain: Mapping[str, Any], *, wait: bool = False) -> float | None:
    """Do what a composed configuration asks for; None when it is only a rehearsal.

    `wait` for another process that has the run, rather than saying so.
    """
    config, request = split(plain)
    if request.dry_run:
        from lmsweep.sweep.estimate import describe
        from lmsweep.sweep.plan import Plan

        print(describe(Plan.of([config]), request), flush=True)
        return None
    folder, results = when_free(lambda: execute(config, request)) if wait else execute(config, request)
    task = task_of(config, folder.id)
    if task is not None and task.rank > 0:
        return None  # task 0 speaks
    metrics = results["metrics"]
    print(
        f"{folder.path}  validation {metrics['val_accuracy']:.2%}  test {metrics['test_accuracy']:.2%}",
        flush=True,
    )
    return float(metrics["val_accuracy"])
