"""From a configuration to objects: everything that can be wrong with a run shows here, before any work."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lmsweep.config import Component, RunConfig
from lmsweep.data import Dataset, Source, prepare
from lmsweep.errors import ConfigError
from lmsweep.margin import MarginLoss
from lmsweep.seeds import derive_seed
from lmsweep.training.module import Classifier


def build_data(config: RunConfig) -> Dataset:
    """The splits of a run."""
    source = _call("data.source", config.data.source)
    if not isinstance(source, Source):
        raise ConfigError(f"data.source._target_={config.data.source.target} gave no lmsweep.data.Source")
    data = config.data
    return prepare(
        source,
        seed=config.seed,
        fraction=data.fraction,
        label_noise=data.label_noise,
        noisy_validation=data.noisy_validation,
    )


def build_module(config: RunConfig, data: Dataset) -> Classifier:
    """The network with fresh weights, and how it is trained."""
    torch.manual_seed(derive_seed(config.seed, "initialisation"))
    network = _call("model", config.model, num_classes=data.num_classes, input_shape=data.input_shape)
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model._target_={config.model.target} gave no torch.nn.Module")
    optimizer = config.optimizer
    factory = functools.partial(_call, "optimizer", optimizer, lr=optimizer.lr)
    module = Classifier(
        network,
        criterion=config.method.criterion,
        xent_weight=config.method.xent_weight,
        optimizer=lambda params: factory(params=params, weight_decay=optimizer.weight_decay),
        lr_decay=optimizer.lr_decay,
        lr_decay_every=optimizer.lr_decay_every,
    )
    module.configure_optimizers()  # a bad argument is found now rather than after the claim
    return module


def build_margin(config: RunConfig, module: Classifier) -> MarginLoss | None:
    """The margin callback, when the method has one; its layers are known to exist."""
    if not config.method.margin:
        return None
    callback = MarginLoss(**config.margin.model_dump())
    try:
        callback.check(module)
    except ValueError as error:
        raise ConfigError(f"margin.layers={config.margin.layers} does not fit the model: {error}.") from None
    return callback


def _locate(key: str, target: str) -> Callable[..., Any]:
    module_name, _, name = target.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}._target_={target} cannot be imported: {error}.") from None
    return found


def _call(key: str, component: Component, **offered: Any) -> Any:
    """Call a component with its own arguments, and with those of `offered` that it knows."""
    function = _locate(key, component.target)
    parameters = inspect.signature(function).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in component.arguments:
        if name not in parameters and not open_ended:
            raise ConfigError(
                f"{key}.{name} is not an argument of {component.target}; it has {', '.join(parameters)}."
            )
    arguments = {k: v for k, v in offered.items() if k in parameters or open_ended}
    try:
        return function(**arguments, **component.arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        given = ", ".join(f"{key}.{name}={value}" for name, value in component.arguments.items())
        raise ConfigError(f"{component.target} does not accept {given}: {error}.") from error
