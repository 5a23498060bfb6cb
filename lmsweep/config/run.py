"""The schema of a run, and of what a call wants done about it: what every key of conf/config.yaml must be.

The keys themselves, group by group, are in `lmsweep.config.groups`; here is what they are together.
"""

from collections.abc import Mapping
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
    _check_batch(run)
    _check_standardisation(run)
    _check_optimizer(run)
    _check_schedule(run)
    _check_sampling(run)
    _check_acquisition(run)
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


def _check_acquisition(run: RunConfig) -> None:
    options = run.acquisition
    if not options.active:
        return
    key = f"acquisition.score={options.score} is not allowed with"
    if run.data.fraction != 1:
        raise ConfigError(
            f"{key} data.fraction={run.data.fraction:g}: an acquisition chooses from all training images; "
            "use data.fraction=1, or acquisition.score=none."
        )
    if run.trainer.processes > 1:
        raise ConfigError(
            f"{key} {run.trainer.processes} processes: use trainer.devices=1 and trainer.num_nodes=1."
        )
    if options.score != "random" and options.pool is not None and options.pool < options.added:
        raise ConfigError(
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
