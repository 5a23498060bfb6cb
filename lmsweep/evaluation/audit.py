"""Is a run's robustness real, or are its gradients masked? The audit of stored runs."""

from collections.abc import Mapping
from typing import Any

from lmsweep.config.evaluation import AuditConfig
from lmsweep.config.measurement import Measurement
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.jobs import Runs
from lmsweep.evaluation.runs import StoredRun, check_transfer, cross_entropy_source, find_run


def audit_measurement(config: AuditConfig, run: StoredRun) -> tuple[Measurement, dict[str, StoredRun]]:
    """The audit of a run as the store knows it, and the runs it names."""
    source = _source(config, run)
    runs = {run.id: run, source.id: source} if source else {run.id: run}
    return Measurement("audit", config, (run.id,), source.id if source else None), runs


def judged(config: AuditConfig, results: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The verdict on stored evidence, and its reasons."""
    from lmsweep.attacks.masking import Evidence, Thresholds, judge

    evidence, thresholds = Evidence(**results["evidence"]), Thresholds(**config.thresholds.model_dump())
    return judge(evidence, thresholds)


def _source(config: AuditConfig, run: StoredRun) -> StoredRun | None:
    if config.source == "none":
        return None
    if config.source != "xent":
        source = find_run(config.outputs, config.source, config.trust)
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


def measure_audit(measurement: Measurement, runs: Runs) -> dict[str, Any]:
    """Run every attack of the audit on the target."""
    from lmsweep.attacks.masking import measure
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    config = measurement.config
    if not isinstance(config, AuditConfig):
        raise TypeError(f"{type(config).__name__} describes no audit")
    device = device_of(config)
    checkpoint = load_run(runs[measurement.targets[0]], config.root, device)
    source = load_run(runs[measurement.source], config.root, device) if measurement.source else None
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
        source=source.network if source else None,
    )
    return {"evidence": evidence.to_dict()}
