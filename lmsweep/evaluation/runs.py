"""Find runs in the store: what their configurations may call, and which may attack which. Needs no torch."""

import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from lmsweep.config.run import RunConfig, parse
from lmsweep.errors import ConfigError, UserError
from lmsweep.store.store import JobFolder, Store

# A comparison of methods holds everything else fixed that counts for a run's identity.
COMPARED = ("seed", "method", "margin", "adversarial", "telemetry")


@dataclass(frozen=True)
class StoredRun:
    """A finished run and the configuration it was trained with."""

    folder: JobFolder
    config: RunConfig
    trust: str | None = None  # packages that a stored configuration may call; None: it is the caller's own

    @property
    def id(self) -> str:
        """The run's id, from its configuration: evaluations are kept by it, and a folder can be renamed."""
        return self.config.id


Runs = Mapping[str, StoredRun]  # by id


def find_run(outputs: str, name: str, trust: str | None = "") -> StoredRun:
    """Find a finished run by its id, by a beginning that no other id has, or by its folder.

    Its configuration may name code of the packages in `trust`, beside ours and torch's; None for those who
    only read it.
    """
    path = Path(name)
    if (path / "config.yaml").is_file():
        return _read(JobFolder(path.resolve()), trust)
    return _read(Store(outputs).find(name), trust)


def conditions(config: RunConfig) -> dict[str, Any]:
    """What runs have in common whose methods can be compared."""
    return {key: value for key, value in config.identity_dict().items() if key not in COMPARED}


def cross_entropy_source(outputs: str, target: StoredRun) -> StoredRun:
    """The cross-entropy run with the target's conditions and the next other seed, as the paper's attacker."""
    wanted, seed = conditions(target.config), target.config.seed
    rivals: dict[int, StoredRun] = {}
    store = Store(outputs)
    for name, (_, results) in store.entries().items():
        # The index has the method, and is read much faster than a configuration is checked.
        if results is None or results.get("method") != "xent":
            continue
        try:
            run = _read(store.folder(name), target.trust or "")
        except UserError:
            continue  # made when there were other keys, so it shares its conditions with no other run
        if run.config.seed != seed and conditions(run.config) == wanted:
            rivals[run.config.seed] = run
    if not rivals:
        raise UserError(
            f"Run {target.id} has no cross-entropy run of its data and model with another seed in {outputs}; "
            f"train one with its keys, method=xent and seed={seed + 1}, or name a run with source=RUN."
        )
    return rivals[min(rivals, key=lambda other: (other < seed, other))]


def check_transfer(source: StoredRun, target: StoredRun, split: str) -> None:
    """Refuse a source that does not have the target's samples, or not in the same split."""
    if source.config.data.source != target.config.data.source:
        raise UserError(f"Run {source.id} cannot attack run {target.id}: they have different data.")
    if split != "test" and _draw(source.config) != _draw(target.config):
        raise ConfigError(
            f"split={split} is not allowed with examples of run {source.id} for run {target.id}: it must be "
            "test, the only split that runs with different seeds, fractions or label noise share."
        )


def _draw(config: RunConfig) -> tuple[Any, ...]:
    """What decides which samples and labels are for training and validation."""
    data = config.data
    return config.seed, data.fraction, data.label_noise


def _read(folder: JobFolder, trust: str | None) -> StoredRun:
    status = folder.read_status()
    state = status.get("state")
    if state not in ("done", "damaged"):
        raise UserError(f"Run {folder.id} is not finished (it is {state}); train it first.")
    try:
        run = StoredRun(folder, parse(folder.read_config()), trust)
    except ConfigError as error:
        raise UserError(
            f"Run {folder.id} was made by another version of lmsweep ({error}); train it again."
        ) from None
    if run.id != folder.id:
        raise UserError(
            f"{folder.config} describes run {run.id}, not {folder.id}: name the folder {run.id} again, "
            "or train the run again if another version of lmsweep made it."
        )
    if state == "damaged":
        raise UserError(status["reason"])
    if trust is not None:
        check_names(run.config, trust)
    return run


# What a configuration that comes out of a store may call: a store can be somebody else's.
ALLOWED = ("lmsweep", "pytorch_lightning.callbacks", "torch.nn", "torch.optim", "torchvision.models")


def check_names(config: RunConfig, trust: str) -> None:
    """Refuse targets outside of the allow-list and of `trust`, the packages that the caller trusts."""
    for key, component in config.components.items():
        hidden = any(part.startswith("_") for part in component.target.split("."))  # lmsweep.__main__ runs
        allowed = not hidden and _below(component.target, ALLOWED)
        if not allowed and not _below(component.target, _trusted(trust)):
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
        made = get_type_hints(found).get("return") if inspect.isfunction(found) else found
        if not (inspect.isclass(made) and issubclass(made, kind)):
            raise UserError(
                f"{key}._target_={component.target} of the stored run is not called: it must give a "
                f"{kind.__module__}.{kind.__name__} (docs/security.md)."
            )


def _trusted(trust: str) -> list[str]:
    return [name for name in re.split(r"[,\s]+", trust) if name]


def _below(target: str, packages: Any) -> bool:
    return any(target == package or target.startswith(f"{package}.") for package in packages)
