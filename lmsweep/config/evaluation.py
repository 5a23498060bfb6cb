"""The schemas of conf/evaluation.yaml, conf/audit.yaml and conf/distances.yaml, and what is measured by them.

Values are in conf/; the keys of an attack are declared by its class in lmsweep/attacks/. Each description
completes the sentence "it must be ..." in the error a user sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field

from lmsweep.config.fields import Accelerator, Count, CountOrNull, Name, Node, Positive, Unit, Whole, checked
from lmsweep.config.groups import ModelConfig, TrackingConfig
from lmsweep.config.identity import run_id
from lmsweep.errors import ConfigError

if TYPE_CHECKING:
    from lmsweep.attacks.attack import Attack
else:
    Attack = Any  # importing attacks imports torch; `parse_as` checks the attack by its own class


class MeasuredConfig(Node):
    """How many samples a network is measured on, and with what."""

    samples: Annotated[int | None, Field(ge=1, description="a whole number >= 1, or null for all")]
    batch_size: Count
    seed: Whole
    accelerator: Accelerator
    threads: Count


class StoredRunsConfig(MeasuredConfig):
    """What every command over stored runs has."""

    runs: Annotated[list[str], Field(description="a list of run ids")]
    checkpoint: Literal["best", "last"]
    split: Literal["test", "val", "train"]
    root: Name
    outputs: Name
    trust: Annotated[str, Field(description="names of packages, separated by spaces")] = ""

    def identity_dict(self, *, transfer: bool = False) -> dict[str, Any]:
        """The part that can change the result, without the runs.

        With `transfer`, as far as the examples are shown to other networks than their own.

        batch_size counts: it decides which random numbers a sample gets, and where nothing is random still
        how sums are rounded, so that a sample on the boundary can fall to the other side.
        """
        return self.model_dump(exclude={"runs", "accelerator", "threads", "root", "outputs", "trust"})


class EvaluationConfig(StoredRunsConfig):
    """An attack on stored runs."""

    source: Name
    attack: Attack
    tracking: TrackingConfig

    def identity_dict(self, *, transfer: bool = False) -> dict[str, Any]:
        """The part that can change one curve."""
        config = super().identity_dict()
        del config["source"], config["tracking"]
        if not self.attack.seeded:
            del config["seed"]
        return {**config, "attack": self.attack.identity(transfer=transfer)}


class ThresholdsConfig(Node):
    """How large the gap and every sign of an audit may be; docs/attacks.md says how limits were chosen."""

    gap: Unit
    hidden_gradients: Unit
    zero_gradients: Unit
    saturated: Unit
    unstable_predictions: Unit
    silent_success: Unit
    incomplete_optimisation: Unit
    transfer_failure: Unit
    unconstrained_fails: Unit
    every_unconstrained_fails: Unit
    gradient_free_wins: Unit


class AuditKeys(Node):
    """What every audit has."""

    epsilons: Annotated[list[Positive], Field(min_length=1, description="a list of numbers > 0")]
    alpha: Positive
    unbounded_alpha: Positive
    attack: Attack
    thresholds: ThresholdsConfig


class AuditConfig(StoredRunsConfig, AuditKeys):
    """The masking audit of stored runs."""

    source: Name

    def identity_dict(self, *, transfer: bool = False) -> dict[str, Any]:
        """The part that can change the evidence. Thresholds judge the evidence, and only that is stored."""
        config = super().identity_dict()
        del config["source"], config["thresholds"]
        return {**config, "attack": self.attack.identity(transfer=False), "audit": AUDIT_VERSION}


class OwnAuditConfig(AuditKeys, MeasuredConfig):
    """The masking audit of a network that no store has."""

    model: ModelConfig
    weights: Annotated[str | None, Field(description="a file of torch.save, or null")]
    images: Name
    size: CountOrNull
    mean: Annotated[list[float] | None, Field(description="a list of numbers, or null")]
    std: Annotated[list[Positive] | None, Field(description="a list of numbers > 0, or null")]
    page: Name


class DistancesConfig(StoredRunsConfig):
    """Linearised distances against those that attacks find."""

    norms: Annotated[
        list[Literal["l1", "l2", "linf"]], Field(min_length=1, description="a list of l1, l2 and linf")
    ]
    steps: Count


C = TypeVar("C", bound=Node)


def parse_as(schema: type[C], config: Mapping[str, Any]) -> C:
    """Check a composed configuration; raise ConfigError with one sentence about the first thing wrong."""
    if "attack" in schema.model_fields:
        from lmsweep.attacks.attack import attack_class

        keys = dict(config["attack"])
        chosen = attack_class(str(keys.pop("kind", None)))
        config = {**config, "attack": checked(chosen, keys, "attack")}
    parsed = checked(schema, config)
    if not getattr(parsed, "runs", True):
        raise ConfigError(
            "There is no run to evaluate; name one or more ids of outputs/runs/ before the keys."
        )
    return parsed


# Raise this when an attack or measurement changes in a way that makes old results incomparable.
EVALUATION_VERSION = 3
AUDIT_VERSION = 2  # the same for an audit alone
# What an evaluation of decision regions leaves in its folder: the grid, its scores and the data.
REGIONS_FILE = "regions.npz"


@dataclass(frozen=True)
class Measurement:
    """One evaluation: what kind, of which runs, and how.

    `config` may name its runs by the beginnings of their ids; `targets` and `source` are the runs themselves.
    Examples of one source are shown to all its targets, so they are made once; without a source an attack
    makes examples on its only target.
    """

    kind: str  # "attack", "audit", "distances" or "regions"
    config: StoredRunsConfig
    targets: tuple[str, ...]
    source: str | None = None

    @property
    def frozen(self) -> dict[str, Any]:
        """All that can change the results."""
        options = self.config.identity_dict(transfer=self.source is not None)
        return {"kind": self.kind, "targets": list(self.targets), "source": self.source, **options}

    @property
    def id(self) -> str:
        """The hash of what can change the results."""
        return run_id(self.frozen, EVALUATION_VERSION)

    @property
    def runs(self) -> tuple[str, ...]:
        """Every run whose weights are needed."""
        return (*self.targets, self.source) if self.source else self.targets
