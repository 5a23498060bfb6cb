"""Attack stored runs: which evaluations a request means, and how they are measured."""

from collections.abc import Mapping
from typing import Any

from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.errors import ConfigError
from lmsweep.evaluation.jobs import Job, complete
from lmsweep.evaluation.runs import StoredRun, check_transfer, cross_entropy_source, find_run
from lmsweep.store.store import RunFolder
from lmsweep.sweep.execute import Results
from lmsweep.tracking.jobs import mirror_attack


def evaluate(config: EvaluationConfig) -> list[tuple[Job, RunFolder, Results]]:
    """The evaluations that `config` asks for; those in the store already are only read.

    White-box (`source=self`) is one evaluation per run. With any other source it is one per pair of source
    and target, so that requests share pairs; the examples of a source are made once for all its targets.
    """
    jobs = _jobs(config)
    done: dict[str, tuple[RunFolder, Results]] = {}
    fresh: list[Job] = []

    def work(missing: list[Job], _folders: list[RunFolder]) -> list[Results]:
        fresh.extend(missing)
        return _measure(config, missing)

    for group in _groups(config, jobs):
        found = complete(config.outputs, group, work)
        done |= {job.id: pair for job, pair in zip(group, found, strict=True)}
    for job in fresh:
        mirror_attack(config.tracking, config.outputs, job.target.config, done[job.id][1])
    return [(job, *done[job.id]) for job in jobs]


def _jobs(config: EvaluationConfig) -> list[Job]:
    targets = [find_run(config.outputs, name) for name in config.runs]
    if config.source == "self":
        options = config.attack_identity(transfer=False)
        return [Job("attack", run, run, options) for run in targets]
    if not config.attack.transfers:
        raise ConfigError(
            f"source={config.source} is not allowed with attack.kind={config.attack.kind}: it must be self."
        )
    options = config.attack_identity(transfer=True)
    pairs = _pairs(config, targets)
    for source, target in pairs:
        check_transfer(source, target, config.split)
    return [Job("attack", target, source, options) for source, target in pairs]


def _pairs(config: EvaluationConfig, targets: list[StoredRun]) -> list[tuple[StoredRun, StoredRun]]:
    if config.source == "all":
        return [(source, target) for source in targets for target in targets]
    if config.source == "xent":
        return [(cross_entropy_source(config.outputs, target), target) for target in targets]
    source = find_run(config.outputs, config.source)
    return [(source, target) for target in targets]


def _groups(config: EvaluationConfig, jobs: list[Job]) -> list[list[Job]]:
    """Jobs that are measured together: for transfer, all that take their examples from the same source."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        key = job.id if config.source == "self" or job.source is None else job.source.id
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _measure(config: EvaluationConfig, jobs: list[Job]) -> list[Results]:
    from lmsweep.attacks import attack_curve, transfer_curves
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    device, attack = device_of(config), config.attack
    source = load_run(jobs[0].source or jobs[0].target, config.root, device)
    batches = batches_of(config, source.data)
    common: Mapping[str, Any] = {"unit": attack.unit}
    if config.source == "self":
        stop = jobs[0].options["attack"].get("early_stop", False)
        curve = attack_curve(source.network, batches, attack, seed=config.seed, early_stop=stop)
        return [{**curve.to_dict(), **common}]
    networks = {
        job.id: source.network
        if job.target.id == source.run.id
        else load_run(job.target, config.root, device).network
        for job in jobs
    }
    curves = transfer_curves(source.network, networks, batches, attack, seed=config.seed)
    return [{**curves[job.id].to_dict(), **common} for job in jobs]
