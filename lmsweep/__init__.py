"""Large-margin deep networks as a Hydra sweep platform.

`lmsweep.run(...)`, `lmsweep.sweep(...)`, `lmsweep.results()` and `lmsweep.load(run)` are the command line for
notebooks. Importing the package is cheap on purpose: nothing here imports torch, so that `lmsweep --help` and
commands that only read the store start at once.
"""

import importlib
from types import ModuleType
from typing import Any

from lmsweep import _torchvision
from lmsweep import sweep as _sweep

__version__ = "0.1.0"

_torchvision.install()


def __getattr__(name: str) -> Any:
    """What notebooks use, imported when it is first asked for."""
    if name in ("Run", "load", "results", "run"):
        return getattr(importlib.import_module("lmsweep.commands.notebook"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _CallablePackage(ModuleType):
    """The package `lmsweep.sweep`, which is also the function `lmsweep.sweep(name, scale=...)`."""

    def __call__(self, name: str, **keys: Any) -> Any:
        """Train what is missing of a file of sweeps/ and return a row per run."""
        return importlib.import_module("lmsweep.commands.notebook").sweep(name, **keys)


_sweep.__class__ = _CallablePackage
