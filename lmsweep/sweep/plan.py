"""Which runs a grid asks for: every job's run, each run once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmsweep.config.request import Request
from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError
from lmsweep.store.state import Standing, standing
from lmsweep.store.store import Store


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep as ids of runs, and the configuration of each run."""

    jobs: list[str]
    runs: Mapping[str, RunConfig]

    @classmethod
    def of(cls, configs: Sequence[RunConfig]) -> "Plan":
        """Plan for these configurations; equal ones, and ones that differ in unused keys, are one run."""
        jobs = [config.id for config in configs]
        if len({config.outputs for config in configs}) > 1:
            raise ConfigError("outputs cannot be swept: all runs of a sweep are kept in one store.")
        return cls(jobs, dict(zip(jobs, configs, strict=True)))

    @property
    def store(self) -> Store:
        """Where the runs are kept."""
        return Store(self.outputs)

    @property
    def outputs(self) -> Path:
        """The folder of the store."""
        return Path(next(iter(self.runs.values())).outputs)

    @property
    def cells(self) -> int:
        """How many runs there are when seeds do not count."""
        return len({config.cell for config in self.runs.values()})

    def about(self) -> dict[str, dict[str, Any]]:
        """What a list shows of each run."""
        return {name: config.about() for name, config in self.runs.items()}

    def standings(self, request: Request) -> dict[str, Standing]:
        """What has to be done about each run."""
        return {name: standing(self.store.run(name).read_status(), request) for name in self.runs}

    def counts(self, request: Request) -> Counter[Standing]:
        """How many runs are cached, failed and missing."""
        return Counter(self.standings(request).values())
