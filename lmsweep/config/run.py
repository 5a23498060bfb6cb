"""The schema of a run: what every key of conf/ must be.

Values and defaults live in conf/. Each description below completes the sentence "it must be ..." in the
error a user sees, and doubles as the documentation of the key.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from lmsweep.config.explain import invalid_value
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
    node_of,
)
from lmsweep.config.identity import run_id
from lmsweep.errors import ConfigError
from lmsweep.margin.options import MarginOptions, sample_size

# Keys that cannot change what a run computes, so that they do not count for its identity.
IGNORED_BY_IDENTITY = (
    "outputs",
    "tracking",
    "trainer.log_every",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.channels_last",  # changes rounding only, as another kind of CPU or number of devices does
    "data.name",
    "data.root",
    "data.workers",
    "model.name",
    "optimizer.name",
)


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
    noisy_validation: Flag
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
    """`method`: a criterion on the logits, with or without the margin loss."""

    criterion: Annotated[Literal["xent", "hinge"], Field(description="xent or hinge")]
    xent_weight: NonNegative
    margin: Flag


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
    """`trainer`: how long, in what batches, on what hardware, and which weights are kept."""

    max_steps: Count
    batch_size: Count
    val_every: Count
    selection: Annotated[Literal["best", "last"], Field(description="best or last")]
    gradient_clip: Annotated[float | None, Field(gt=0, description="a number > 0, or null")]
    accelerator: Annotated[Literal["auto", "cpu", "gpu"], Field(description="auto, cpu or gpu")]
    precision: Annotated[
        Literal["32-true", "16-mixed", "bf16-mixed", "64-true"],
        Field(description="32-true, 16-mixed, bf16-mixed or 64-true"),
    ]
    threads: Count
    log_every: Count
    # Runs that were stored before there were these keys had one process and no such speed-ups.
    devices: Count = 1
    num_nodes: Count = 1
    compile: Flag = False
    channels_last: Flag = False

    @property
    def processes(self) -> int:
        """How many processes train a run together."""
        return self.devices * self.num_nodes


class TelemetryConfig(Node):
    """`telemetry`: where and how often the distance to the boundary is measured during training."""

    every: Whole
    norm: Norm
    layers: Layers
    samples: Count


# Runs that were stored before there was such a key measured nothing.
NO_TELEMETRY = TelemetryConfig(every=0, norm=2.0, layers="even:3", samples=500)


class TrackingConfig(Node):
    """`tracking`: where the run is mirrored to, beside the store."""

    name: Annotated[Literal["none", "tensorboard", "wandb"], Field(description="none, tensorboard or wandb")]
    # What a choice has no use for, and what runs had that were stored before there were these keys.
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
    trainer: TrainerConfig
    telemetry: TelemetryConfig = NO_TELEMETRY
    tracking: TrackingConfig
    outputs: Name

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values, ready for YAML or JSON."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    def identity_dict(self) -> dict[str, Any]:
        """The part of the configuration that can change the result."""
        config = self.to_dict()
        for key in IGNORED_BY_IDENTITY:
            *parents, last = key.split(".")
            node = config
            for parent in parents:
                node = node[parent]
            node.pop(last, None)
        # What a choice leaves unused must not make two runs out of one.
        if not self.method.margin:
            del config["margin"]
        elif self.margin.top_k is None:
            del config["margin"]["candidates"]
        if self.adversarial.kind == "none":
            del config["adversarial"]
        else:
            for key in {"fgsm": ("alpha", "steps"), "pgd": ("random_epsilon",)}[self.adversarial.kind]:
                del config["adversarial"][key]
        if self.telemetry.every == 0:
            config.pop("telemetry", None)
        if not self.trainer.compile:
            config["trainer"].pop("compile", None)
        if self.data.label_noise == 0:
            del config["data"]["noisy_validation"]
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
        }

    def method_name(self) -> str:
        """The method as figures call it: `xent`, `hinge`, `margin_l2_all`, ..., `xent+pgd`, ...

        Gamma, clipping and the like are hyperparameters of a method; what makes another loss gets a word.
        """
        suffix = "" if self.adversarial.kind == "none" else f"+{self.adversarial.kind}"
        if not self.method.margin:
            return self.method.criterion + suffix
        layers = self.margin.layers
        layers = "+".join(layers) if isinstance(layers, list) else layers
        words = [self.method.criterion if self.method.criterion != "xent" else "", self.margin.score]
        words = [word for word in words if word not in ("", "logit")] + ["exact"] * self.margin.exact
        return "_".join([f"margin_l{self.margin.norm:g}", layers, *words]) + suffix


def parse(config: Mapping[str, Any]) -> RunConfig:
    """Check a composed configuration; raise ConfigError with one sentence about the first thing wrong."""
    try:
        run = RunConfig.model_validate(config)
    except ValidationError as error:
        raise ConfigError(invalid_value(RunConfig, error.errors()[0])) from None
    trainer = run.trainer
    if trainer.batch_size % trainer.processes:
        raise ConfigError(
            f"trainer.batch_size={trainer.batch_size} is not allowed: it must be divisible by "
            f"trainer.devices * trainer.num_nodes = {trainer.processes}, the processes that share a batch."
        )
    if run.optimizer.lr_decay != 1 and not run.schedule.constant:
        raise ConfigError(
            f"optimizer.lr_decay={run.optimizer.lr_decay:g} is not allowed with schedule={run.schedule.name} "
            "or schedule.warmup: use schedule=constant without warm-up, or optimizer.lr_decay=1."
        )
    if run.schedule.warmup >= trainer.max_steps:
        raise ConfigError(
            f"schedule.warmup={run.schedule.warmup} is not allowed: it must be a whole number below "
            f"trainer.max_steps={trainer.max_steps}."
        )
    if run.method.margin and run.margin.candidates == "sampled":
        try:
            sample_size(run.margin.model_dump())
        except ValueError as error:
            raise ConfigError(f"margin.{error}.".replace("None", "null")) from None
    return run
