"""Evaluations as jobs: identity, cache, and what each of them says about its runs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmsweep.config.identity import run_id
from lmsweep.evaluation.runs import StoredRun
from lmsweep.provenance import provenance
from lmsweep.store.store import RunFolder, Store
from lmsweep.sweep.execute import Results, perform

# Raise this when an attack or measurement changes in a way that makes old results incomparable.
EVALUATION_VERSION = 3


@dataclass(frozen=True)
class Job:
    """One measurement on one run, with examples from `source` when that is another run."""

    kind: str
    target: StoredRun
    source: StoredRun | None
    options: Mapping[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """All that can change the result: kind, checkpoints and options."""
        return {
            "kind": self.kind,
            "target": self.target.id,
            "source": self.source.id if self.source else None,
            **self.options,
        }

    @property
    def id(self) -> str:
        """The hash of the checkpoints' ids and the options."""
        return run_id(self.config, EVALUATION_VERSION)

    def describe(self) -> dict[str, Any]:
        """What figures want to know about the runs without looking them up."""
        source = self.source.config if self.source else None
        return {
            "id": self.id,
            **self.config,
            "method": self.target.config.method_name(),
            "seed_of_run": self.target.config.seed,
            "source_method": source.method_name() if source else None,
        }


def complete(
    outputs: str,
    jobs: Sequence[Job],
    work: Callable[[list[Job], list[RunFolder]], list[Results]],
) -> list[tuple[RunFolder, Results]]:
    """Return folder and results of each job; `work` measures those that the store does not have yet."""
    store = Store(outputs, "evaluations")
    missing = {job.id: job for job in jobs if store.run(job.id).read_results() is None}
    if missing:

        def measure(folders: list[RunFolder]) -> list[Results]:
            started = time.time()
            found = work([missing[folder.id] for folder in folders], folders)
            common = {"seconds": time.time() - started, "provenance": provenance()}
            return [
                {**missing[folder.id].describe(), **values, **common}
                for folder, values in zip(folders, found, strict=True)
            ]

        perform(store, {name: job.config for name, job in missing.items()}, measure)
    return [(store.run(job.id), store.run(job.id).read_results() or {}) for job in jobs]
