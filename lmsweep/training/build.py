"""From a configuration to objects: everything that can be wrong with a run shows here, before any work."""

import dataclasses
import importlib
import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau, StepLR

from lmsweep.config.fields import Component, checked
from lmsweep.config.run import RunConfig
from lmsweep.data import Augmentation, Dataset, Source, fixed_choice, prepare
from lmsweep.errors import ConfigError
from lmsweep.margin import MarginLoss
from lmsweep.margin.layers import hidden_layers, network
from lmsweep.margin.temporary import evaluating
from lmsweep.methods import Method, method_class
from lmsweep.methods.method import last_linear
from lmsweep.seeds import derive_seed
from lmsweep.training.acquisition import check_acquisition
from lmsweep.training.callbacks import AdversarialTraining, DistanceTelemetry
from lmsweep.training.module import Classifier
from lmsweep.training.optimizers import warmed_up

# Telemetry measures a training batch at once, so that it needs no more memory than training; of small images
# it measures about so many input values at once, because small batches are mostly overhead.
TELEMETRY_VALUES = 20_000


@dataclass
class Parts:
    """What a run is made of, built and known to fit together."""

    config: RunConfig
    data: Dataset
    module: Classifier
    margin: MarginLoss | None
    telemetry: DistanceTelemetry | None
    callbacks: Sequence[pl.Callback] = ()


def prepare_run(config: RunConfig) -> Parts:
    """Build everything a run needs, without side effects; ConfigError says what does not fit."""
    if config.trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigError("trainer.accelerator=gpu needs a GPU that torch can use; use auto or cpu.")
    gpus = torch.cuda.device_count() if config.trainer.accelerator != "cpu" else 0
    if config.trainer.gpu is not None and config.trainer.gpu >= gpus:
        there = f"torch sees {gpus}, counted from 0" if gpus else "there is no GPU to use"
        raise ConfigError(
            f"trainer.devices={config.trainer.devices} names a GPU, and {there}; name another one, or leave "
            f"it out{' and use trainer.accelerator=auto' if config.trainer.accelerator == 'cpu' else ''}."
        )
    bound = gpus == 1 and int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1  # each task sees its own one
    if 0 < gpus < config.trainer.processes_per_node and not bound:
        raise ConfigError(
            f"trainer.devices={config.trainer.devices} needs so many GPUs, and torch sees {gpus}; "
            "lower it, or use trainer.accelerator=cpu."
        )
    torch.set_num_threads(config.trainer.threads)
    data, most = build_data(config), config.trainer.evaluation_samples
    if most is not None:
        data = data.evaluated_on(fixed_choice(len(data.val), most), fixed_choice(len(data.test), most))
    job = assemble(config, data)
    if config.acquisition.active:
        check_acquisition(config.acquisition, job.data, job.module, config.data.name)
    return job


def assemble(config: RunConfig, data: Dataset) -> Parts:
    """Build a fresh network for the data, and what trains it."""
    module = build_module(config, data)
    if config.trainer.compile:
        compile_layers(module)
    margin, telemetry = build_margin(config, module, data.num_classes), build_telemetry(config, module, data)
    return Parts(config, data, module, margin, telemetry, build_callbacks(config))


def build_data(config: RunConfig) -> Dataset:
    """The splits of a run."""
    changed = config.changed_content()
    if changed:
        raise ConfigError(
            f"{changed[0]} has changed since run {config.id} was configured: put the old content back, or "
            "give the command of the run again, which makes a new run of the new content."
        )
    named = {"root": config.data.root, "workers": config.data.workers}
    source = _call("data.source", config.data.source, named, gives=(Source, "lmsweep.data.Source"))
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
    gives = (nn.Module, "torch.nn.Module")
    network = _call("model", config.model, named, gives=gives, num_classes=data.num_classes)
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
    if config.trainer.channels_last:
        network.to(memory_format=torch.channels_last)
        module.channels_last = True
    return module


def build_method(config: RunConfig) -> Method:
    """The method, with the options of its block; ConfigError for options that cannot go together."""
    name, margin, adversarial = config.method.criterion, config.method.margin, config.adversarial.kind
    method = checked(method_class(name), config.method.options, f"method.{name}")
    named, compiled, attacked = f"method={name}", config.trainer.compile, adversarial != "none"
    exact, per_sample = config.margin.exact, config.margin.batch_norm == "per_sample"
    again = "a compiled backward pass cannot be differentiated again"
    changed = "a compiled backward pass cannot be changed for class gradients"
    for wrong, key, other, reason in (
        (compiled and margin and exact, "trainer.compile=true", "margin.exact=true", again),
        (compiled and margin and per_sample, "trainer.compile=true", "margin.batch_norm=per_sample", changed),
        (compiled and method.differentiates_twice, "trainer.compile=true", named, again),
        (margin and method.further_passes, "method.margin=true", named, "it runs the network more than once"),
        (attacked and method.makes_examples, f"adversarial={adversarial}", named, "it attacks itself"),
    ):
        if wrong:
            raise ConfigError(f"{key} is not allowed with {other}: {reason}; leave one of them out.")
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
    gives = (pl.Callback, "pytorch_lightning.Callback")
    return [_call(f"callbacks.{name}", own, gives=gives) for name, own in config.callbacks.items()]


def build_adversarial(config: RunConfig) -> AdversarialTraining | None:
    """The callback that makes batches adversarial, when asked for."""
    if config.adversarial.kind == "none":
        return None
    return AdversarialTraining(seed=config.seed, **config.adversarial.model_dump())


def _call(
    key: str,
    component: Component,
    named: dict[str, Any] | None = None,
    *,
    gives: tuple[type, str] = (object, ""),
    **offered: Any,
) -> Any:
    """Call a component with the arguments of its configuration, and with those that only the run knows.

    `offered` goes to whatever takes it, `**kwargs` included; `named` only to parameters of that name, because
    a class that passes its `**kwargs` on would fail on them. The configuration's own arguments come first.
    `gives` is the class of what must come out, and what an error calls it.
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
        made = function(**(arguments | component.arguments))
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        given = ", ".join(f"{key}.{name}={value}" for name, value in component.arguments.items())
        raise ConfigError(f"{component.target} does not accept {given}: {error}.") from error
    kind, described = gives
    if not isinstance(made, kind):
        raise ConfigError(f"{key}._target_={component.target} gave no {described}.")
    return made


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
