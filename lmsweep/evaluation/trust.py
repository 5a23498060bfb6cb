"""What a configuration that comes out of a store may call: a store can be somebody else's."""

import importlib
import inspect
import re
from typing import Any, get_type_hints

from lmsweep.config.run import RunConfig
from lmsweep.errors import UserError

ALLOWED = ("lmsweep", "pytorch_lightning.callbacks", "torch.nn", "torch.optim", "torchvision.models")


def check_names(config: RunConfig, trust: str) -> None:
    """Refuse targets outside of the allow-list and of `trust`, the packages that the caller trusts."""
    for key, component in config.components.items():
        hidden = any(part.startswith("_") for part in component.target.split("."))  # lmsweep.__main__ runs
        if not _below(component.target, _trusted(trust)) and (
            hidden or not _below(component.target, ALLOWED)
        ):
            package = component.target.rpartition(".")[0]
            raise UserError(
                f"{key}._target_={component.target} of the stored run is not called: a store may name only "
                f"{', '.join(ALLOWED)}; if the code is yours, say trust={package} or set LMSWEEP_TRUST "
                "(docs/security.md)."
            )


def check_types(config: RunConfig, trust: str) -> None:
    """Refuse targets of the allow-list that give something else than their key asks for; needs torch."""
    from pytorch_lightning import Callback
    from torch import nn, optim

    from lmsweep.data import Source

    check_names(config, trust)
    kinds = {"data.source": Source, "model": nn.Module, "optimizer": optim.Optimizer}
    kinds["schedule"] = optim.lr_scheduler.LRScheduler
    for key, component in config.components.items():
        if _below(component.target, _trusted(trust)):
            continue
        kind = kinds.get(key, Callback)
        module, _, name = component.target.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UserError(f"{key}._target_={component.target} cannot be imported: {error}.") from None
        made = found if inspect.isclass(found) else _returned(found)
        if not (inspect.isclass(made) and issubclass(made, kind)):
            raise UserError(
                f"{key}._target_={component.target} of the stored run is not called: it must give a "
                f"{kind.__module__}.{kind.__name__} (docs/security.md)."
            )


def _trusted(trust: str) -> list[str]:
    return [name for name in re.split(r"[,\s]+", trust) if name]


def _below(target: str, packages: Any) -> bool:
    return any(target == package or target.startswith(f"{package}.") for package in packages)


def _returned(function: Any) -> Any:
    return get_type_hints(function).get("return") if inspect.isfunction(function) else None
