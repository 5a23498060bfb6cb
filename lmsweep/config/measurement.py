"""What is measured of stored runs: the identity of an evaluation, for figures and the store."""

from dataclasses import dataclass
from typing import Any

from lmsweep.config.evaluation import AuditConfig, EvaluationConfig, StoredRunsConfig
from lmsweep.config.identity import run_id

# Raise this when an attack or measurement changes in a way that makes old results incomparable.
EVALUATION_VERSION = 3
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
        return {"kind": self.kind, "targets": list(self.targets), "source": self.source, **self._options()}

    @property
    def id(self) -> str:
        """The hash of what can change the results."""
        return run_id(self.frozen, EVALUATION_VERSION)

    @property
    def runs(self) -> tuple[str, ...]:
        """Every run whose weights are needed."""
        return (*self.targets, self.source) if self.source else self.targets

    def _options(self) -> dict[str, Any]:
        if isinstance(self.config, EvaluationConfig):
            return self.config.attack_identity(transfer=self.source is not None)
        options = self.config.identity_dict()
        if isinstance(self.config, AuditConfig):
            del options["source"]
            del options["thresholds"]  # thresholds judge the evidence, and the store keeps the evidence only
        return options
