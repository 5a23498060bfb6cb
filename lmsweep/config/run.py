"""The schema of a run, and of what a call wants done about it: what every key of conf/config.yaml must be.

The keys themselves, group by group, are in `lmsweep.config.groups`; here is what they are together.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from lmsweep.config.fields import Component, Flag, Name, Node, Whole, checked
from lmsweep.config.groups import (
    CONSTANT,
    NO_ACQUISITION,
    NO_TELEMETRY,
    AcquisitionConfig,
    AdversarialConfig,
    DataConfig,
    MarginConfig,
    MethodConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    TelemetryConfig,
    TrackingConfig,
    TrainerConfig,
)
from lmsweep.config.identity import content_of, dotted, drop, run_id
from lmsweep.errors import ConfigError
from lmsweep.margin.options import sample_size

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


class RunConfig(Node):
    """Everything that one run needs to know."""

    seed: Whole
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
        method, score, trainer, data = self.method, self.acquisition.score, self.trainer, self.data
        config["method"] = {name: getattr(method, name) for name in MethodConfig.model_fields}
        if method.options:
            config["method"][method.criterion] = method.options
        # A key that is not used must not make two runs out of one; and what was stored before a key existed
        # has the identity of the key's default.
        unused = {
            "margin": not method.margin,
            "margin.candidates": self.margin.top_k is None,
            "adversarial": self.adversarial.kind == "none",
            "adversarial.alpha": self.adversarial.kind == "fgsm",
            "adversarial.steps": self.adversarial.kind == "fgsm",
            "adversarial.random_epsilon": self.adversarial.kind == "pgd",
            "acquisition": not self.acquisition.active,
            "acquisition.passes": score == "random",
            "acquisition.pool": score == "random",
            "content": not self.content,
            "callbacks": not self.callbacks,
            "trainer.evaluation_samples": trainer.evaluation_samples is None,
            "trainer.compile": not trainer.compile,
            "trainer.channels_last": trainer.channels_last,  # the other order of memory rounds differently
            "telemetry": self.telemetry.every == 0,
            "data.mean": data.mean is None,
            "data.std": data.std is None,
            "data.augment": not any(config["data"]["augment"].values()),
            "schedule": self.schedule.constant,
            "schedule.name": True,
            "optimizer.lr_decay_every": self.optimizer.lr_decay == 1,
        }
        drop(config, (*IGNORED_BY_IDENTITY, *(key for key, is_unused in unused.items() if is_unused)))
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
    for problem in _problems(run):
        raise ConfigError(problem)
    return run


def _problems(run: RunConfig) -> Iterator[str]:
    """What is wrong with values seen together."""
    data, optimizer, schedule, trainer = run.data, run.optimizer, run.schedule, run.trainer
    if trainer.batch_size % trainer.processes:
        yield (
            f"trainer.batch_size={trainer.batch_size} is not allowed: it must be divisible by "
            f"trainer.devices * trainer.num_nodes = {trainer.processes}, the processes that share a batch."
        )
    for given, missing in (("mean", "std"), ("std", "mean")):
        if getattr(data, given) is not None and getattr(data, missing) is None:
            yield (
                f"data.{given}={getattr(data, given)} is not allowed without data.{missing}: give both, "
                "or null for no standardisation."
            )
    for name in AVERAGES:
        value = optimizer.arguments.get(name, 0)
        if not isinstance(value, float | int) or not 0 <= value < 1:
            yield (
                f"optimizer.{name}={value} is not allowed: it must be a number in [0, 1); at 1 or more the "
                "optimizer's running average grows without end."
            )
    if optimizer.lr_decay != 1 and not schedule.constant:
        yield (
            f"optimizer.lr_decay={optimizer.lr_decay:g} is not allowed with schedule={schedule.name} "
            "or schedule.warmup: use schedule=constant without warm-up, or optimizer.lr_decay=1."
        )
    if schedule.warmup >= trainer.max_steps:
        yield (
            f"schedule.warmup={schedule.warmup} is not allowed: it must be a whole number below "
            f"trainer.max_steps={trainer.max_steps}."
        )
    if run.method.margin and run.margin.candidates == "sampled":
        try:
            sample_size(run.margin.model_dump())
        except ValueError as error:
            yield f"margin.{error}.".replace("None", "null")
    if run.acquisition.active:
        yield from _problems_of_acquisition(run)


def _problems_of_acquisition(run: RunConfig) -> Iterator[str]:
    options = run.acquisition
    key = f"acquisition.score={options.score} is not allowed with"
    if run.data.fraction != 1:
        yield (
            f"{key} data.fraction={run.data.fraction:g}: an acquisition chooses from all training images; "
            "use data.fraction=1, or acquisition.score=none."
        )
    if run.trainer.processes > 1:
        yield f"{key} {run.trainer.processes} processes: use trainer.devices=1 and trainer.num_nodes=1."
    if options.score != "random" and options.pool is not None and options.pool < options.added:
        yield (
            f"acquisition.pool={options.pool} is not allowed: it must be at least "
            f"acquisition.added={options.added}, or null for all images."
        )


def check_sweepable(run: RunConfig) -> None:
    """Raise ConfigError for what makes sense for a single run only."""
    if run.trainer.gpu is not None:
        raise ConfigError(
            f"trainer.devices={run.trainer.devices} is not allowed in a sweep, which gives every run a GPU "
            f"of its own: CUDA_VISIBLE_DEVICES={run.trainer.gpu} before the command names those to use."
        )


# Keys of conf/config.yaml that describe a sweep and its picture; a run knows nothing of them.
OF_THE_SWEEP = ("figure", "grid")


class Request(Node):
    """How a command treats what the store has already. These keys are about the call, not about a run."""

    retry: Literal["failed", "none"] = "failed"
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
