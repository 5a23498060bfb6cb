"""The schemas of conf/evaluation.yaml, conf/audit.yaml and conf/distances.yaml; values are in conf/.

Each description completes the sentence "it must be ..." in the error a user sees.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from lmsweep.config.explain import invalid_value
from lmsweep.config.fields import Count, Flag, Name, Node, NonNegative, Positive
from lmsweep.config.run import TrackingConfig
from lmsweep.errors import ConfigError

# What each attack leaves unused must not make two evaluations out of one.
UNUSED = {
    "fgsm": ("stddevs", "alpha", "steps", "restarts", "queries"),
    "ifgsm": ("stddevs", "restarts", "queries"),
    "pgd": ("stddevs", "snrs", "queries"),
    "search": ("stddevs", "snrs", "loss", "alpha", "steps", "restarts"),
    "gaussian": ("epsilons", "snrs", "loss", "target", "alpha", "steps", "restarts", "queries", "early_stop"),
}
Share = Annotated[float, Field(ge=0, le=1, description="a number in [0, 1]")]
Strengths = Annotated[list[NonNegative], Field(min_length=1, description="a list of numbers >= 0")]


class StoredRunsConfig(Node):
    """What every command over stored runs has."""

    runs: Annotated[list[str], Field(description="a list of run ids")]
    split: Annotated[Literal["test", "val", "train"], Field(description="test, val or train")]
    samples: Annotated[int | None, Field(ge=1, description="a whole number >= 1, or null for all")]
    batch_size: Count
    seed: Annotated[int, Field(ge=0, description="a whole number >= 0")]
    accelerator: Annotated[Literal["auto", "cpu", "gpu"], Field(description="auto, cpu or gpu")]
    threads: Count
    root: Name
    outputs: Name

    def identity_dict(self) -> dict[str, Any]:
        """The part that can change the result, without the runs.

        batch_size counts: it decides which random numbers a sample gets, and where nothing is random still
        how sums are rounded, so that a sample on the boundary can fall to the other side.
        """
        config = self.model_dump()
        for key in ("runs", "accelerator", "threads", "root", "outputs"):
            del config[key]
        return config


class AttackConfig(Node):
    """`attack`: one attack over a range of strengths."""

    kind: Annotated[
        Literal["fgsm", "ifgsm", "pgd", "search", "gaussian"],
        Field(description="fgsm, ifgsm, pgd, search or gaussian"),
    ]
    epsilons: Strengths
    snrs: Annotated[
        list[float] | None, Field(min_length=1, description="a list of numbers (dB), or null for epsilons")
    ]
    stddevs: Strengths
    loss: Annotated[Literal["xent", "margin"], Field(description="xent or margin")]
    target: Annotated[Literal["none", "least_likely"], Field(description="none or least_likely")]
    alpha: Annotated[float | None, Field(gt=0, description="a number > 0, or null in pgd")]
    steps: Annotated[int | None, Field(ge=1, description="a whole number >= 1, or null in ifgsm")]
    restarts: Count
    queries: Count
    clip_pixels: Flag
    early_stop: Flag

    @property
    def unit(self) -> Literal["epsilon", "snr", "stddev"]:
        """What the strengths are."""
        if self.kind == "gaussian":
            return "stddev"
        return "snr" if self.snrs is not None else "epsilon"

    @property
    def strengths(self) -> tuple[float, ...]:
        """The x axis of the curve."""
        chosen = {"stddev": self.stddevs, "snr": self.snrs, "epsilon": self.epsilons}[self.unit]
        return tuple(chosen or ())


class EvaluationConfig(StoredRunsConfig):
    """An attack on stored runs."""

    source: Name
    attack: AttackConfig
    tracking: TrackingConfig

    def attack_identity(self, *, transfer: bool) -> dict[str, Any]:
        """The part that can change one curve; examples for other networks never stop early."""
        config = self.identity_dict()
        del config["source"], config["tracking"]
        attack = config["attack"]
        for key in UNUSED[self.attack.kind]:
            del attack[key]
        if attack.get("snrs") is not None:
            del attack["epsilons"]
            if attack.get("steps") is not None:
                del attack["alpha"]  # the steps alone say how long each of them is
        else:
            attack.pop("snrs", None)
        if transfer or self.attack.unit == "snr":
            attack["early_stop"] = False
        if self.attack.kind in ("fgsm", "ifgsm"):
            del config["seed"]
        return config


class ThresholdsConfig(Node):
    """`thresholds`: see `lmsweep.attacks.masking.Thresholds`."""

    tolerance: Share
    other_loss: Share
    more_steps: Share
    zero_gradients: Share
    unbounded: Share


class AuditConfig(StoredRunsConfig):
    """The masking audit of stored runs."""

    source: Name
    epsilons: Annotated[list[Positive], Field(min_length=1, description="a list of numbers > 0")]
    alpha: Positive
    pgd_steps: Count
    restarts: Count
    queries: Count
    unbounded_alpha: Positive
    thresholds: ThresholdsConfig


class DistancesConfig(StoredRunsConfig):
    """Linearised distances against those that attacks find."""

    norms: Annotated[
        list[Literal["l1", "l2", "linf"]], Field(min_length=1, description="a list of l1, l2 and linf")
    ]
    steps: Count


C = TypeVar("C", bound=StoredRunsConfig)


def parse_as(schema: type[C], config: Mapping[str, Any]) -> C:
    """Check a composed configuration; raise ConfigError with one sentence about the first thing wrong."""
    try:
        parsed = schema.model_validate(config)
    except ValidationError as error:
        raise ConfigError(invalid_value(schema, error.errors()[0])) from None
    if not parsed.runs:
        raise ConfigError(
            "There is no run to evaluate; name one or more ids of outputs/runs/ before the keys."
        )
    if isinstance(parsed, EvaluationConfig):
        _check_attack(parsed.attack)
    return parsed


def _check_attack(attack: AttackConfig) -> None:
    """What only shows when several keys are seen together."""
    kind = attack.kind
    if attack.snrs is not None and kind not in ("fgsm", "ifgsm"):
        raise ConfigError(f"attack.snrs is not allowed with attack.kind={kind}: it is for fgsm and ifgsm.")
    if kind == "ifgsm" and attack.alpha is None:
        raise ConfigError("attack.alpha=null is not allowed with attack.kind=ifgsm: it must be a number > 0.")
    if kind == "pgd" and attack.steps is None:
        raise ConfigError(
            "attack.steps=null is not allowed with attack.kind=pgd: it must be a whole number >= 1."
        )
    if kind == "ifgsm" and attack.steps is not None and attack.unit == "epsilon" and attack.alpha:
        widest = max(attack.epsilons)
        if attack.steps * attack.alpha < widest * (1 - 1e-9):
            raise ConfigError(
                f"attack.steps={attack.steps} is not allowed: IFGSM takes at least epsilon / alpha steps, "
                f"here {widest:g} / {attack.alpha:g}; raise attack.steps or attack.alpha."
            )
