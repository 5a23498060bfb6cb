"""`python with_plugins.py script.py ...` runs a Hydra application that knows our launcher as `lmsweep`."""

import runpy
import sys

from hydra.core.config_store import ConfigStore

from lmsweep.sweep.sweeper import register_plugins


def register() -> None:
    register_plugins()
    node = {"_target_": "hydra_plugins.lmsweep.LocalLauncher", "jobs": 2, "runs_per_gpu": 1}
    ConfigStore.instance().store(group="hydra/launcher", name="lmsweep", node=node, provider="lmsweep")


if __name__ == "__main__":
    register()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
