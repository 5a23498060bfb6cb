"""Evaluations as jobs: which measurements a request means, and how each is kept and run. Needs no torch."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from lmsweep.config.evaluation import AuditConfig, AuditKeys, DistancesConfig, EvaluationConfig, Measurement
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.runs import Runs, StoredRun, check_transfer, cross_entropy_source, find_run
from lmsweep.provenance import provenance
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, Needs, Results, Work

PICTURE = "distances.png"  # what a measurement of distances leaves in its folder
Mirror = Callable[[Results], None]  # is told the results of a new measurement


def attack_measurements(config: EvaluationConfig) -> tuple[list[Measurement], dict[str, StoredRun]]:
    """The measurements that a request means, and the runs they name.

    White-box (`source=self`) is one measurement per run; with any other source it is one per source, because
    the examples of a source are made once for all its targets.
    """
    targets = [find_run(config.outputs, name, config.trust) for name in config.runs]
    if config.source == "self":
        return [Measurement("attack", config, (run.id,)) for run in targets], {run.id: run for run in targets}
    if not config.attack.transfers:
        raise ConfigError(
            f"source={config.source} is not allowed with attack.kind={config.attack.kind}: it must be self."
        )
    groups: dict[str, list[str]] = {}
    runs: dict[str, StoredRun] = {}
    for source, target in _pairs(config, targets):
        check_transfer(source, target, config.split)
        groups.setdefault(source.id, []).append(target.id)
        runs |= {source.id: source, target.id: target}
    wanted = [Measurement("attack", config, tuple(sorted(group)), source) for source, group in groups.items()]
    return wanted, runs


def _pairs(config: EvaluationConfig, targets: list[StoredRun]) -> list[tuple[StoredRun, StoredRun]]:
    if config.source == "all":
        return [(source, target) for source in targets for target in targets]
    if config.source == "xent":
        return [(cross_entropy_source(config.outputs, target), target) for target in targets]
    source = find_run(config.outputs, config.source, config.trust)
    return [(source, target) for target in targets]


def audit_measurement(config: AuditConfig, run: StoredRun) -> tuple[Measurement, dict[str, StoredRun]]:
    """The audit of a run as the store knows it, and the runs it names."""
    source = None
    if config.source == "xent":
        with suppress(UserError):  # the audit says that transfer was not tested, rather than nothing at all
            found = cross_entropy_source(config.outputs, run)
            check_transfer(found, run, config.split)
            source = found
    elif config.source != "none":
        source = find_run(config.outputs, config.source, config.trust)
        if source.id == run.id:
            raise ConfigError(
                f"source={config.source} is the audited run itself: it must be another run, xent or none."
            )
        check_transfer(source, run, config.split)
    runs = {run.id: run, source.id: source} if source else {run.id: run}
    return Measurement("audit", config, (run.id,), source.id if source else None), runs


def judged(config: AuditKeys, results: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The verdict on stored evidence, and its reasons."""
    from lmsweep.attacks.measures.masking import Evidence, judge

    return judge(Evidence(**results["evidence"]), config.thresholds.model_dump())


def evaluation_job(measurement: Measurement, runs: Runs, mirror: Mirror | None = None) -> Job:
    """The job of a measurement; `runs` are the stored runs it names, by id."""
    config = measurement.config
    runs = {name: runs[name] for name in measurement.runs}
    methods = dict.fromkeys(runs[name].config.method_name() for name in measurement.targets)
    target = runs[measurement.targets[0]].config
    about: dict[str, Any] = {
        "method": ", ".join(methods),
        "data": target.data.name,
        "kind": measurement.kind,
        "target": " ".join(measurement.targets),
        "seed": target.seed,
    }
    return Job(
        kind=measurement.kind,
        id=measurement.id,
        outputs=config.outputs,
        config=measurement.frozen,
        about=about,
        begin=partial(_evaluation, measurement, runs, mirror),
        summary=_summary,
        needs=Needs(config.accelerator, config.threads),
        preload=("lmsweep.training.preload", __name__),
    )


@contextmanager
def _evaluation(measurement: Measurement, runs: Runs, mirror: Mirror | None) -> Iterator[Work]:
    found: list[Results] = []

    def work(folder: JobFolder) -> Results:
        started = time.time()
        values = _measure(measurement, runs, folder)
        methods = {name: runs[name].config.method_name() for name in measurement.runs}
        results = {
            "id": measurement.id,
            **measurement.frozen,
            "methods": methods,
            **values,
            "seconds": time.time() - started,
            "provenance": provenance(),
        }
        found.append(results)
        folder.last.unlink(missing_ok=True)  # the parts of a measurement that is whole now
        return results

    yield work
    if mirror and found:  # what was there already has been mirrored before
        mirror(found[0])


def _measure(measurement: Measurement, runs: Runs, folder: JobFolder) -> Results:
    from lmsweep.evaluation import measure  # imports torch, which a list of jobs does not need

    config = measurement.config
    if isinstance(config, EvaluationConfig):
        return measure.measure_attack(measurement, config, runs, measure.remembering(folder))
    if isinstance(config, AuditConfig):
        return measure.measure_audit(measurement, config, runs, measure.remembering(folder))
    if isinstance(config, DistancesConfig):
        return measure.measure_distances(measurement, config, runs, folder)
    return measure.measure_regions(measurement, runs, folder)


def _summary(results: Results) -> str:
    """What was found, in a few words."""
    if "curves" in results:
        curve = next(iter(results["curves"].values()))
        points = zip(curve["strengths"], curve["accuracy"], strict=True)
        return "  ".join(f"{strength:g}: {accuracy:.1%}" for strength, accuracy in points)
    return str(results["kind"])
