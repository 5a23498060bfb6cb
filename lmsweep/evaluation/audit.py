"""Is a run's robustness real, or are its gradients masked? The audit of stored runs."""

from typing import Any

from lmsweep.config.evaluation import AuditConfig
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.jobs import Job, complete
from lmsweep.evaluation.runs import StoredRun, check_transfer, cross_entropy_source, find_run
from lmsweep.store.store import RunFolder
from lmsweep.sweep.execute import Results


def audit(config: AuditConfig, run: StoredRun) -> tuple[RunFolder, Results]:
    """Measure one run, or read what was measured before, and judge it by the thresholds of this request."""
    job = audit_job(config, run, _source(config, run))
    ((folder, results),) = complete(config.outputs, [job], lambda jobs, _: _measure(config, jobs))
    verdict, reasons = judged(config, results)
    return folder, {**results, "verdict": verdict, "reasons": reasons}


def audit_job(config: AuditConfig, run: StoredRun, source: StoredRun | None) -> Job:
    """The audit of a run as the store knows it; `source` is whose examples transfer is tested with."""
    return Job("audit", run, source, _options(config))


def judged(config: AuditConfig, results: Results) -> tuple[str, list[str]]:
    """The verdict on stored evidence, and its reasons."""
    from lmsweep.attacks.masking import Evidence, Thresholds, judge

    evidence, thresholds = Evidence(**results["evidence"]), Thresholds(**config.thresholds.model_dump())
    return judge(evidence, thresholds)


def _options(config: AuditConfig) -> dict[str, Any]:
    options = config.identity_dict()
    del options["source"], options["thresholds"]  # thresholds judge the evidence; the store keeps that only
    return options


def _source(config: AuditConfig, run: StoredRun) -> StoredRun | None:
    if config.source == "none":
        return None
    if config.source != "xent":
        source = find_run(config.outputs, config.source)
        if source.id == run.id:
            raise ConfigError(
                f"source={config.source} is the audited run itself: it must be another run, xent or none."
            )
        check_transfer(source, run, config.split)
        return source
    try:
        source = cross_entropy_source(config.outputs, run)
        check_transfer(source, run, config.split)
        return source
    except UserError:  # the audit says that transfer was not tested, rather than not answering at all
        return None


def _measure(config: AuditConfig, jobs: list[Job]) -> list[Results]:
    from lmsweep.attacks.masking import measure
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    device = device_of(config)
    results = []
    for job in jobs:
        checkpoint = load_run(job.target, config.root, device)
        evidence = measure(
            checkpoint.network,
            batches_of(config, checkpoint.data),
            epsilons=config.epsilons,
            alpha=config.alpha,
            pgd_steps=config.pgd_steps,
            restarts=config.restarts,
            queries=config.queries,
            unbounded_alpha=config.unbounded_alpha,
            seed=config.seed,
            source=load_run(job.source, config.root, device).network if job.source else None,
        )
        results.append({"evidence": evidence.to_dict()})
    return results
