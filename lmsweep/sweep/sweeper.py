"""The sweeper behind `-m`: Hydra's grid, with rules that give some jobs axes of their own; and our plugins.

Hydra instantiates launchers and sweepers only by names below `hydra_plugins`, a package that it otherwise
searches for installed plugins. Ours are registered in code, so that name is given to them here.
"""

import sys
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lmsweep.config.hydra import composed_value
from lmsweep.config.sweeps import expand
from lmsweep.sweep.local import LocalLauncher
from lmsweep.sweep.slurm import SlurmLauncher

HOME = "hydra_plugins.lmsweep"


class GridSweeper(Sweeper):
    """`params` as in Hydra's own sweeper, and `rules` as `lmsweep.config.sweeps.Rule` describes them.

    Unlike Hydra's, it writes no multirun.yaml (the store keeps each run's configuration) and does not compose
    every job twice, because the launcher composes all of them before it starts any.
    """

    def __init__(
        self, params: Mapping[str, Any] | None = None, rules: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.params = dict(params or {})
        self.rules = dict(rules or {})
        self.config: DictConfig
        self.hydra_context: HydraContext
        self.launcher: Launcher

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        if OmegaConf.select(self.config, "grid.stages"):
            print(
                "grid.stages is for `lmsweep reproduce`; -m trains every setting on every seed.", flush=True
            )
        parser = OverridesParser.create(self.hydra_context.config_loader)
        jobs = expand(self.params, self.rules, arguments, parser, partial(composed_value, self.config))
        returned = self.launcher.launch(jobs, initial_job_idx=0)
        for result in returned:
            _ = result.return_value  # raises what a job raised
        return [returned]


def make_launcher(config: Mapping[str, Any]) -> LocalLauncher:
    """The launcher that a composed `hydra.launcher` describes."""
    register_plugins()
    return cast(LocalLauncher, instantiate(config))


def register_plugins() -> None:
    """Before Hydra starts; calling it again does nothing."""
    plugins = Plugins.instance()  # has imported the real hydra_plugins, if any plugin is installed
    parent = sys.modules.setdefault("hydra_plugins", ModuleType("hydra_plugins"))
    home = sys.modules.setdefault(HOME, ModuleType(HOME))
    parent.lmsweep = home  # type: ignore[attr-defined]
    for plugin in (LocalLauncher, SlurmLauncher, GridSweeper):
        plugin.__module__ = HOME
        setattr(home, plugin.__name__, plugin)
        plugins.register(plugin)
