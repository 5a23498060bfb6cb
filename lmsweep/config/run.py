"""The schema of a run, and of what a call wants done about it: what every key of conf/config.yaml must be.

Values and defaults live in conf/. Each description below completes the sentence "it must be ..." in the
error a user sees, and doubles as the documentation of the key.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from lmsweep.config.acquisition import NO_ACQUISITION, AcquisitionConfig
from lmsweep.config.content import content_of
from lmsweep.config.fields import (
    Component,
    Count,
    Flag,
    Layers,
    Name,
    Node,
    NonNegative,
    Norm,
    Positive,
    Unit,
    Whole,
    checked,
    node_of,
)
from lmsweep.config.identity import dotted, drop, run_id
from lmsweep.errors import ConfigError
from lmsweep.margin.options import MarginOptions, sample_size

# Keys that cannot change what a run computes, so that they do not count for its identity.
IGNORED_BY_IDENTITY = (
    "outputs",
    "tracking",
    "trainer.log_every",
    "trainer.devices",
    "trainer.num_nodes",
    "data.name",
    "data.root",
    "data.workers",
    "model.name",
    "optimizer.name",
)


# Arguments of torch's optimizers that weigh the past in a running average; torch itself accepts any number.
AVERAGES = ("momentum", "alpha", "dampening")


class AugmentConfig(Node):
    """`data.augment`: the arguments of `lmsweep.data.Augmentation`."""

    pad: Whole
    flip: Flag
    brightness: Unit
    contrast: Unit
    saturation: Unit
    hue: Annotated[float, Field(ge=0, le=0.5, description="a number in [0, 0.5]")]


class DataConfig(Node):
    """`data`: which samples, how many, and how many of their labels are wrong."""

    name: Name
    source: Component
    fraction: Annotated[float, Field(gt=0, le=1, description="a number in (0, 1]")]
    label_noise: Annotated[float, Field(ge=0, lt=1, description="a number in [0, 1)")]
    root: Name
    workers: Whole
    mean: Annotated[list[float] | None, Field(description="a list of numbers, one per channel, or null")]
    std: Annotated[list[Positive] | None, Field(description="a list of numbers > 0, or null")]
    augment: AugmentConfig


class ModelConfig(Component):
    """`model`: the network; every further key is an argument of its class."""

    name: Name


class OptimizerConfig(Component):
    """`optimizer`: the update rule and its step-wise exponential learning-rate decay."""

    name: Name
    lr: Positive
    weight_decay: NonNegative
    lr_decay: Annotated[float, Field(gt=0, le=1, description="a number in (0, 1]")]
    lr_decay_every: Count


class ScheduleConfig(Component):
    """`schedule`: a scheduler of torch, asked for the rate after every step; other keys are its own."""

    name: Name
    warmup: Whole

    @property
    def constant(self) -> bool:
        """Whether the learning rate stays what the optimizer says."""
        return not self.warmup and self.target == CONSTANT_TARGET and self.arguments.get("factor") == 1


# Runs that were stored before there was such a key had the optimizer's rate and its decay only.
CONSTANT_TARGET = "torch.optim.lr_scheduler.ConstantLR"
CONSTANT = ScheduleConfig.model_validate(
    {"name": "constant", "_target_": CONSTANT_TARGET, "warmup": 0, "factor": 1.0}
)


class MethodConfig(Node):
    """`method`: what is trained on, with or without the margin loss.

    Each further key is a block of options of the method that has its name. The method's class declares them
    (`lmsweep.methods`), and checks them where the run is built; blocks of other methods do not count.
    """

    model_config = ConfigDict(extra="allow")

    criterion: Annotated[str, Field(pattern=r"^[a-z]\w*$", description="a method of lmsweep.methods")]
    xent_weight: NonNegative
    margin: Flag

    @model_validator(mode="before")
    @classmethod
    def _without_infinity(cls, keys: Any) -> Any:
        """Write infinity as a word in every block, because JSON has no infinity."""
        return {
            name: {k: "inf" if v == math.inf else v for k, v in value.items()}
            if isinstance(value, dict)
            else value
            for name, value in keys.items()
        }

    @property
    def options(self) -> dict[str, Any]:
        """The options of the method itself."""
        return dict((self.model_extra or {}).get(self.criterion) or {})


MarginNode: Any = node_of(MarginOptions)


class MarginConfig(MarginNode):
    """`margin`: the arguments of `lmsweep.margin.MarginLoss`, as `lmsweep.margin.options` declares them."""


class AdversarialConfig(Node):
    """`adversarial`: the arguments of `lmsweep.training.adversarial.adversarial_batch`."""

    kind: Annotated[Literal["none", "fgsm", "pgd"], Field(description="none, fgsm or pgd")]
    epsilon: Positive
    fraction: Annotated[float, Field(gt=0, le=1, description="a number in (0, 1]")]
    random_epsilon: Flag
    label: Annotated[Literal["given", "predicted"], Field(description="given or predicted")]
    loss: Annotated[Literal["xent", "margin"], Field(description="xent or margin")]
    alpha: Positive
    steps: Count


class TrainerConfig(Node):
    """`trainer`: how long, in what batches, and on what hardware."""

    max_steps: Count
    batch_size: Count
    val_every: Count
    gradient_clip: Annotated[float | None, Field(gt=0, description="a number > 0, or null")]
    accelerator: Annotated[Literal["auto", "cpu", "gpu"], Field(description="auto, cpu or gpu")]
    precision: Annotated[
        Literal["32-true", "16-mixed", "bf16-mixed", "64-true"],
        Field(description="32-true, 16-mixed, bf16-mixed or 64-true"),
    ]
    threads: Count
    log_every: Count
    # Runs that were stored before these keys existed had one process and none of these speed-ups.
    evaluation_samples: Annotated[
        int | None, Field(ge=1, description="a whole number >= 1, or null for all samples")
    ] = None
    devices: Annotated[
        Count | Annotated[list[Whole], Field(min_length=1, max_length=1)],
        Field(description="a whole number >= 1, or the index of one GPU in brackets, such as [1]"),
    ] = 1
    num_nodes: Count = 1
    compile: Flag = False
    channels_last: Flag = False

    @property
    def gpu(self) -> int | None:
        """The one GPU that the run is to have, when it is named."""
        return self.devices[0] if isinstance(self.devices, list) else None

    @property
    def processes_per_node(self) -> int:
        """How many processes of the run each node has."""
        return 1 if isinstance(self.devices, list) else self.devices

    @property
    def processes(self) -> int:
        """How many processes train a run together."""
        return self.processes_per_node * self.num_nodes


class TelemetryConfig(Node):
    """`telemetry`: where and how often the distance to the boundary is measured during training."""

    every: Whole
    norm: Norm
    layers: Layers
    samples: Count


# Runs that were stored before this key existed measured nothing.
NO_TELEMETRY = TelemetryConfig(every=0, norm=2.0, layers="even:3", samples=500)


class TrackingConfig(Node):
    """`tracking`: where the run is mirrored to, beside the store."""

    name: Annotated[Literal["none", "tensorboard", "wandb"], Field(description="none, tensorboard or wandb")]
    # Defaults for trackers that have no use for a key, and for runs stored before the key existed.
    project: Name = "lmsweep"
    entity: Annotated[str | None, Field(min_length=1, description="a user or team, or null")] = None
    mode: Annotated[Literal["offline", "online"], Field(description="offline or online")] = "offline"
    patience: NonNegative = 0.0
    pause: NonNegative = 0.0
    examples: Whole = 0
    epsilon: Positive = 0.1
    checkpoint: Flag = False


class RunConfig(Node):
    """Everything that one run needs to know."""

    seed: Annotated[int, Field(ge=0, description="a whole number >= 0")]
    data: DataConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = CONSTANT
    method: MethodConfig
    margin: MarginConfig
    adversarial: AdversarialConfig
    acquisition: AcquisitionConfig = NO_ACQUISITION
    # Lightning's or the user's own, by a name of the user's; runs stored before this key existed had none.
    callbacks: Annotated[
        dict[str, Component], Field(default_factory=dict, description="a group of callbacks by name")
    ]
    trainer: TrainerConfig
    telemetry: TelemetryConfig = NO_TELEMETRY
    tracking: TrackingConfig
    outputs: Name
    # What the run depends on beside this configuration; lmsweep fills it in (`with_content`), not the user.
    content: Annotated[dict[str, str], Field(default_factory=dict, description="digests by key")]

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values, ready for YAML or JSON."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    def identity_dict(self) -> dict[str, Any]:
        """The part of the configuration that can change the result."""
        config = self.to_dict()
        drop(config, IGNORED_BY_IDENTITY)
        # A key that the chosen method does not use must not make two runs out of one.
        method = self.method
        config["method"] = {name: getattr(method, name) for name in MethodConfig.model_fields}
        if method.options:
            config["method"][method.criterion] = method.options
        if not self.method.margin:
            del config["margin"]
        elif self.margin.top_k is None:
            del config["margin"]["candidates"]
        if self.adversarial.kind == "none":
            del config["adversarial"]
        else:
            for key in {"fgsm": ("alpha", "steps"), "pgd": ("random_epsilon",)}[self.adversarial.kind]:
                del config["adversarial"][key]
        if not self.acquisition.active:
            config.pop("acquisition", None)
        elif self.acquisition.score == "random":
            drop(config, ("acquisition.passes", "acquisition.pool"))
        for key in ("content", "callbacks"):
            if not getattr(self, key):
                config.pop(key, None)
        if self.trainer.evaluation_samples is None:
            config["trainer"].pop("evaluation_samples", None)
        if self.telemetry.every == 0:
            config.pop("telemetry", None)
        if not self.trainer.compile:
            config["trainer"].pop("compile", None)
        if self.trainer.channels_last:  # the default; the other order of memory rounds differently
            config["trainer"].pop("channels_last", None)
        for key in ("mean", "std"):
            if config["data"][key] is None:
                del config["data"][key]
        if not any(config["data"]["augment"].values()):
            del config["data"]["augment"]
        schedule = config.pop("schedule", {})
        if not self.schedule.constant:
            config["schedule"] = {key: value for key, value in schedule.items() if key != "name"}
        if self.optimizer.lr_decay == 1:
            del config["optimizer"]["lr_decay_every"]
        return config

    @property
    def id(self) -> str:
        """The run's identity: the hash of what can change its result."""
        return run_id(self.identity_dict())

    @property
    def cell(self) -> str:
        """The identity of the run's cell: all but the seed."""
        return run_id({key: value for key, value in self.identity_dict().items() if key != "seed"})

    @property
    def components(self) -> dict[str, Component]:
        """The parts that call what their `_target_` names, by key."""
        parts = {"data.source": self.data.source, "model": self.model}
        parts |= {"optimizer": self.optimizer, "schedule": self.schedule}
        return parts | {f"callbacks.{name}": callback for name, callback in self.callbacks.items()}

    def content_now(self) -> dict[str, str]:
        """Digests of the data files and of the user's own code that the run depends on, as they are now."""
        return content_of(self.data.root, self.components)

    def with_content(self) -> "RunConfig":
        """The run on the content that its files have now: other content makes another run."""
        content = self.content_now()
        return self.model_copy(update={"content": content}) if content else self

    def changed_content(self) -> list[str]:
        """Which files have other content than when the run was configured, as `key=value`."""
        now, values = self.content_now(), dotted(self.to_dict())
        return [f"{key}={values[key]}" for key, digest in self.content.items() if now.get(key) != digest]

    def about(self) -> dict[str, Any]:
        """What a list of runs shows: the short names of the axes that people sweep."""
        margin = {"gamma": self.margin.gamma} if self.method.margin else {}
        return {
            "method": self.method_name(),
            "data": self.data.name,
            "model": self.model.name,
            "label_noise": self.data.label_noise,
            "fraction": self.data.fraction,
            **margin,
            "seed": self.seed,
            **({"content": ", ".join(self.content)} if self.content else {}),
        }

    def method_name(self) -> str:
        """The method as figures call it: `xent`, `hinge`, `margin_l2_all`, ..., `xent+pgd`, ...

        Gamma, clipping and the like are hyperparameters of a method; what makes another loss gets a word.
        """
        suffix = "" if self.adversarial.kind == "none" else f"+{self.adversarial.kind}"
        suffix += f"+{self.acquisition.score}" if self.acquisition.active else ""
        if not self.method.margin:
            return self.method.criterion + suffix
        layers = self.margin.layers
        layers = "+".join(layers) if isinstance(layers, list) else layers
        words = [self.method.criterion if self.method.criterion != "xent" else "", self.margin.score]
        words = [word for word in words if word not in ("", "logit")] + ["exact"] * self.margin.exact
        return "_".join([f"margin_l{self.margin.norm:g}", layers, *words]) + suffix


def parse(config: Mapping[str, Any]) -> RunConfig:
    """Check a composed configuration; raise ConfigError with one sentence about the first thing wrong."""
    run = checked(RunConfig, config)
    checks = (_check_batch, _check_standardisation, _check_optimizer, _check_schedule, _check_sampling)
    for check in checks:
        check(run)
    run.acquisition.check(run.data.fraction, run.trainer.processes)
    return run


def _check_standardisation(run: RunConfig) -> None:
    for given, missing in (("mean", "std"), ("std", "mean")):
        if getattr(run.data, given) is not None and getattr(run.data, missing) is None:
            raise ConfigError(
                f"data.{given}={getattr(run.data, given)} is not allowed without data.{missing}: give both, "
                "or null for no standardisation."
            )


def _check_optimizer(run: RunConfig) -> None:
    for name in AVERAGES:
        value = run.optimizer.arguments.get(name, 0)
        if not isinstance(value, float | int) or not 0 <= value < 1:
            raise ConfigError(
                f"optimizer.{name}={value} is not allowed: it must be a number in [0, 1); at 1 or more the "
                "optimizer's running average grows without end."
            )


def _check_batch(run: RunConfig) -> None:
    trainer = run.trainer
    if trainer.batch_size % trainer.processes:
        raise ConfigError(
            f"trainer.batch_size={trainer.batch_size} is not allowed: it must be divisible by "
            f"trainer.devices * trainer.num_nodes = {trainer.processes}, the processes that share a batch."
        )


def check_sweepable(run: RunConfig) -> None:
    """Raise ConfigError for what makes sense for a single run only."""
    if run.trainer.gpu is not None:
        raise ConfigError(
            f"trainer.devices={run.trainer.devices} is not allowed in a sweep, which gives every run a GPU "
            f"of its own: CUDA_VISIBLE_DEVICES={run.trainer.gpu} before the command names those to use."
        )


def _check_schedule(run: RunConfig) -> None:
    if run.optimizer.lr_decay != 1 and not run.schedule.constant:
        raise ConfigError(
            f"optimizer.lr_decay={run.optimizer.lr_decay:g} is not allowed with schedule={run.schedule.name} "
            "or schedule.warmup: use schedule=constant without warm-up, or optimizer.lr_decay=1."
        )
    if run.schedule.warmup >= run.trainer.max_steps:
        raise ConfigError(
            f"schedule.warmup={run.schedule.warmup} is not allowed: it must be a whole number below "
            f"trainer.max_steps={run.trainer.max_steps}."
        )


def _check_sampling(run: RunConfig) -> None:
    if run.method.margin and run.margin.candidates == "sampled":
        try:
            sample_size(run.margin.model_dump())
        except ValueError as error:
            raise ConfigError(f"margin.{error}.".replace("None", "null")) from None


# Keys of conf/config.yaml that describe a sweep and its picture; a run knows nothing of them.
OF_THE_SWEEP = ("figure", "grid")


class Request(Node):
    """How a command treats what the store has already. These keys are about the call, not about a run."""

    retry: Annotated[Literal["failed", "none"], Field(description="failed or none")] = "failed"
    force: Flag = False
    dry_run: Flag = False
    name: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z]\w*$", description="a letter, then letters, digits or _, or null"),
    ] = None


def split(plain: Mapping[str, Any]) -> tuple[RunConfig, Request]:
    """Part a composed configuration into the run and what the call wants done about it."""
    keys = Request.model_fields.keys()
    request = checked(Request, {key: plain[key] for key in keys if key in plain})
    of_the_run = {key: value for key, value in plain.items() if key not in (*keys, *OF_THE_SWEEP)}
    return parse(of_the_run).with_content(), request
