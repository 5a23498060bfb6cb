"""From a configuration to objects: everything that can be wrong with a run shows here, before any work."""

import dataclasses
import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau, StepLR

from lmsweep.config.fields import Component, checked
from lmsweep.config.run import RunConfig
from lmsweep.data import Augmentation, Dataset, Source, prepare
from lmsweep.errors import ConfigError
from lmsweep.margin import MarginLoss
from lmsweep.margin.layers import hidden_layers, network
from lmsweep.margin.temporary import evaluating
from lmsweep.methods import Method, method_class
from lmsweep.methods.method import last_linear
from lmsweep.seeds import derive_seed
from lmsweep.training.callbacks import AdversarialTraining, DistanceTelemetry
from lmsweep.training.module import Classifier
from lmsweep.training.optimizers import warmed_up

# Telemetry measures a training batch at once, so that it needs no more memory than training; of small images
# it measures about so many input values at once, because small batches are mostly overhead.
TELEMETRY_VALUES = 20_000


def build_data(config: RunConfig) -> Dataset:
    """The splits of a run."""
    changed = config.changed_content()
    if changed:
        raise ConfigError(
            f"{changed[0]} has changed since run {config.id} was configured: put the old content back, or "
            "give the command of the run again, which makes a new run of the new content."
        )
    named = {"root": config.data.root, "workers": config.data.workers}
    source = _call("data.source", config.data.source, named)
    if not isinstance(source, Source):
        raise ConfigError(f"data.source._target_={config.data.source.target} gave no lmsweep.data.Source")
    data = config.data
    augment = Augmentation(**data.augment.model_dump())
    with _explained(f"data.augment does not fit data={data.name}"):
        augment.check(source.pool.input_shape)
    with _explained(f"data={data.name} cannot be used"):
        prepared = prepare(source, seed=config.seed, fraction=data.fraction, label_noise=data.label_noise)
    return dataclasses.replace(prepared, augment=augment)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn a ValueError, which says what does not fit, into a ConfigError that also says where."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{what}: {error}.") from None


def build_module(config: RunConfig, data: Dataset) -> Classifier:
    """The network with fresh weights, and how it is trained."""
    torch.manual_seed(derive_seed(config.seed, "initialisation"))
    named = {"input_shape": data.input_shape, "input_mean": config.data.mean, "input_std": config.data.std}
    network = _call("model", config.model, named, num_classes=data.num_classes)
    if not isinstance(network, nn.Module):
        raise ConfigError(f"model._target_={config.model.target} gave no torch.nn.Module")
    _try_out(network, config, data)
    method = build_method(config)
    method.prepare(network)
    if method.features:
        with _explained(
            f"method={method.name} needs a linear last layer, so model={config.model.name} does not fit"
        ):
            last_linear(network, torch.zeros(2, *data.input_shape))
    optimizer = config.optimizer
    factory = partial(_call, "optimizer", optimizer, lr=optimizer.lr)
    module = Classifier(
        network,
        method=method,
        seed=config.seed,
        xent_weight=config.method.xent_weight,
        optimizer=lambda params: factory(params=params, weight_decay=optimizer.weight_decay),
        schedule=_schedule(config),
    )
    module.configure_optimizers()  # a bad argument is found now rather than after the lease was taken
    return module


def build_method(config: RunConfig) -> Method:
    """The method, with the options of its block; ConfigError for what it cannot be combined with."""
    name, margin, adversarial = config.method.criterion, config.method.margin, config.adversarial.kind
    twice = "a compiled backward pass cannot be differentiated again"
    method = checked(method_class(name), config.method.options, f"method.{name}")
    for key, wrong, reason in (
        ("method.margin=true", method.further_passes and margin, "it runs the network more than once"),
        (f"adversarial={adversarial}", method.makes_examples and adversarial != "none", "it attacks itself"),
        ("trainer.compile=true", method.differentiates_twice and config.trainer.compile, twice),
    ):
        if wrong:
            raise ConfigError(f"{key} is not allowed with method={name}: {reason}; leave one of them out.")
    return method


def _schedule(config: RunConfig) -> Callable[[Optimizer], LRScheduler] | None:
    """What makes the scheduler of an optimizer; None when the learning rate does not change."""
    schedule, decay = config.schedule, config.optimizer
    if schedule.constant:
        step = partial(StepLR, step_size=decay.lr_decay_every, gamma=decay.lr_decay)
        return step if decay.lr_decay < 1 else None
    steps = config.trainer.max_steps - schedule.warmup
    named = {"total_steps": steps, "total_iters": steps, "T_max": steps, "max_lr": config.optimizer.lr}

    def make(optimizer: Optimizer) -> LRScheduler:
        scheduler = _call("schedule", schedule, named, optimizer=optimizer)
        if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
            raise ConfigError(
                f"schedule._target_={schedule.target} gave no scheduler of torch that goes by steps alone."
            )
        return warmed_up(scheduler, schedule.warmup)

    return make


def _try_out(network: nn.Module, config: RunConfig, data: Dataset) -> None:
    """One forward pass of two black images: what does not fit together shows before any work is done."""
    fit = f"model={config.model.name} does not fit data={config.data.name} of shape {data.input_shape}"
    try:
        with evaluating(network), torch.random.fork_rng(devices=[]), torch.no_grad():
            logits = network(torch.zeros(2, *data.input_shape))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"{fit}: {' '.join(str(error).split())}.") from error
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, data.num_classes):
        got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ConfigError(f"{fit}: for 2 images it gave {got}, and not logits (2, {data.num_classes}).")


def build_margin(config: RunConfig, module: Classifier, num_classes: int) -> MarginLoss | None:
    """The margin callback, when the method has one; its layers are known to exist."""
    if not config.method.margin:
        return None
    callback = MarginLoss(seed=config.seed, **config.margin.model_dump())
    top_k, others = config.margin.top_k, num_classes - 1
    if top_k is not None and top_k > others:
        raise ConfigError(
            f"margin.top_k={top_k} is not allowed: data={config.data.name} has {others} other classes; use a "
            "smaller number, or null for all of them."
        )
    with _explained(f"margin.layers={config.margin.layers} does not fit the model"):
        callback.check(module)
    return callback


def build_telemetry(config: RunConfig, module: Classifier, data: Dataset) -> DistanceTelemetry | None:
    """The callback that measures distances to the boundary, when asked for; its layers exist."""
    telemetry = config.telemetry
    if telemetry.every == 0:
        return None
    with _explained(f"telemetry.layers={telemetry.layers} does not fit the model"):
        names = MarginLoss(layers=telemetry.layers).check(module)
    places = ("input", "middle", "output") if telemetry.layers == "even:3" else names
    splits = {"train": data.train, "val": data.val, "test": data.test}
    return DistanceTelemetry(
        {k: v.select(torch.arange(min(telemetry.samples, len(v)))) for k, v in splits.items()},
        dict(zip(places, names, strict=True)),
        every=telemetry.every,
        norm=telemetry.norm,
        batch_size=max(config.trainer.batch_size, TELEMETRY_VALUES // math.prod(data.input_shape)),
    )


def build_callbacks(config: RunConfig) -> list[pl.Callback]:
    """The callbacks that a run names itself."""
    callbacks = []
    for name, component in config.callbacks.items():
        callback = _call(f"callbacks.{name}", component)
        if not isinstance(callback, pl.Callback):
            raise ConfigError(
                f"callbacks.{name}._target_={component.target} gave no pytorch_lightning.Callback."
            )
        callbacks.append(callback)
    return callbacks


def build_adversarial(config: RunConfig) -> AdversarialTraining | None:
    """The callback that makes batches adversarial, when asked for."""
    if config.adversarial.kind == "none":
        return None
    return AdversarialTraining(seed=config.seed, **config.adversarial.model_dump())


def _call(key: str, component: Component, named: dict[str, Any] | None = None, **offered: Any) -> Any:
    """Call a component with the arguments of its configuration, and with those that only the run knows.

    `offered` goes to whatever takes it, `**kwargs` included; `named` only to parameters of that name, because
    a class that passes its `**kwargs` on would fail on them. The configuration's own arguments come first.
    """
    module_name, _, name = component.target.rpartition(".")
    try:
        function = getattr(importlib.import_module(module_name), name)
        parameters = inspect.signature(function).parameters
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}._target_={component.target} cannot be imported: {error}.") from None
    except (TypeError, ValueError):
        raise ConfigError(f"{key}._target_={component.target} is no class or function to call.") from None
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in component.arguments:
        if name not in parameters and not open_ended:
            raise ConfigError(
                f"{key}.{name} is not an argument of {component.target}; it has {', '.join(parameters)}."
            )
    arguments = {k: v for k, v in (named or {}).items() if k in parameters}
    arguments |= {k: v for k, v in offered.items() if k in parameters or open_ended}
    try:
        return function(**(arguments | component.arguments))
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        given = ", ".join(f"{key}.{name}={value}" for name, value in component.arguments.items())
        raise ConfigError(f"{component.target} does not accept {given}: {error}.") from error


def check_speed(config: RunConfig) -> None:
    """Raise ConfigError for options that cannot go together."""
    if not (config.trainer.compile and config.method.margin):
        return
    per_sample = config.margin.batch_norm == "per_sample"
    for key, wrong, reason in (
        ("margin.exact=true", config.margin.exact, "differentiated again"),
        ("margin.batch_norm=per_sample", per_sample, "changed for class gradients"),
    ):
        if wrong:
            raise ConfigError(
                f"trainer.compile=true is not allowed with {key}: a compiled backward pass cannot be "
                f"{reason}; leave one of them out."
            )


def order_memory(module: Classifier, config: RunConfig) -> None:
    """Apply `trainer.channels_last`, for training or evaluation."""
    if config.trainer.channels_last:
        # torch's stubs know no call with a memory format alone.
        module.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module.channels_last = True


def compile_layers(module: Classifier) -> None:
    """Compile each hidden layer for itself: margins need the activations between them.

    Only `forward` of each layer is replaced, so names in checkpoints stay, and hooks see what they saw.
    """
    import torch._functorch.config as functorch

    # A margin runs the backward pass once per class; buffers that the first one reuses would be gone.
    functorch.donated_buffer = False
    net = network(module)
    for name in hidden_layers(module):
        layer = net.get_submodule(name)
        layer.forward = torch.compile(layer.forward)
    module.compiled = True
