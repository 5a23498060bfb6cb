"""Is the robustness in a figure real? The masking audits of its methods, as far as the store has them."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from lmsweep.config.evaluation import AuditConfig
from lmsweep.config.sweeps import Sweep
from lmsweep.evaluation.audit import audit_job, judged
from lmsweep.evaluation.runs import StoredRun
from lmsweep.figures.evaluations import audit_requests
from lmsweep.figures.spec import FigureSpec
from lmsweep.store.store import Store


def audits_of(sweep: Sweep, spec: FigureSpec, chosen: pd.DataFrame) -> Iterator[tuple[str, str, AuditConfig]]:
    """Method, run and request of every audit that the figure needs."""
    overrides = sweep.grid.audit
    for method, config in audit_requests(spec, chosen, str(sweep.outputs), overrides):
        yield method, config.runs[0], config


def is_audited(sweep: Sweep, run: str, config: AuditConfig) -> bool:
    """Whether the store has the audit."""
    return _results(sweep, run, config) is not None


def read_audits(sweep: Sweep, spec: FigureSpec, chosen: pd.DataFrame) -> list[dict[str, Any]]:
    """The verdicts that the store has evidence for."""
    found = []
    for method, run, config in audits_of(sweep, spec, chosen):
        results = _results(sweep, run, config)
        if results is not None:
            verdict, reasons = judged(config, results)
            found.append({"method": method, "run": run, "verdict": verdict, "reasons": reasons})
    return found


def _results(sweep: Sweep, run: str, config: AuditConfig) -> dict[str, Any] | None:
    runs, store = sweep.runs, Store(sweep.outputs)
    stored = {name: StoredRun(store.run(name), runs[name]) for name in (run, config.source) if name in runs}
    job = audit_job(config, stored[run], stored.get(config.source))
    return Store(sweep.outputs, "evaluations").run(job.id).read_results()
