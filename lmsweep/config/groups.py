"""The groups of keys that a run is configured by: `data`, `model`, `optimizer`, and so on.

Values and defaults live in conf/. Each description below completes the sentence "it must be ..." in the
error a user sees, and doubles as the documentation of the key; a Literal describes itself.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from lmsweep.config.fields import (
    Accelerator,
    Component,
    Count,
    CountOrNull,
    Flag,
    Fraction,
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
from lmsweep.margin.options import MarginOptions


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
    fraction: Fraction
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
    lr_decay: Fraction
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
    """`adversarial`: the arguments of `lmsweep.training.callbacks.adversarial_batch`."""

    kind: Literal["none", "fgsm", "pgd"]
    epsilon: Positive
    fraction: Fraction
    random_epsilon: Flag
    label: Literal["given", "predicted"]
    loss: Literal["xent", "margin"]
    alpha: Positive
    steps: Count


class AcquisitionConfig(Node):
    """`acquisition`: active learning, as `lmsweep.training.acquisition` does it."""

    score: Literal["none", "random", "max_entropy", "bald"]
    start_per_class: Count
    added: Count
    rounds: Count
    passes: Count
    pool: CountOrNull

    @property
    def active(self) -> bool:
        """Whether the run chooses its training images."""
        return self.score != "none"

    def images(self, classes: int) -> int:
        """How many images the last round trains on."""
        return classes * self.start_per_class + self.rounds * self.added


# Runs that were stored before this key existed trained once, on the images they were given.
NO_ACQUISITION = AcquisitionConfig(score="none", start_per_class=2, added=10, rounds=1, passes=1, pool=None)


class TrainerConfig(Node):
    """`trainer`: how long, in what batches, and on what hardware."""

    max_steps: Count
    batch_size: Count
    val_every: Count
    gradient_clip: Annotated[float | None, Field(gt=0, description="a number > 0, or null")]
    accelerator: Accelerator
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"]
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

    name: Literal["none", "tensorboard", "wandb"]
    # Defaults for trackers that have no use for a key, and for runs stored before the key existed.
    project: Name = "lmsweep"
    entity: Annotated[str | None, Field(min_length=1, description="a user or team, or null")] = None
    mode: Literal["offline", "online"] = "offline"
    patience: NonNegative = 0.0
    pause: NonNegative = 0.0
    examples: Whole = 0
    epsilon: Positive = 0.1
    checkpoint: Flag = False
