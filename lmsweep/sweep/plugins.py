"""Make our launcher and sweeper known to Hydra.

Hydra instantiates launchers and sweepers only by names below `hydra_plugins`, a package that it otherwise
searches for installed plugins. Ours are registered in code, so that name is given to them here.
"""

import sys
from types import ModuleType

from hydra.core.plugins import Plugins

from lmsweep.sweep.launcher import LocalLauncher
from lmsweep.sweep.slurm_launcher import SlurmLauncher
from lmsweep.sweep.sweeper import GridSweeper

HOME = "hydra_plugins.lmsweep"


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
