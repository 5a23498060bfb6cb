"""Attack stored runs: which measurements a request means, and how they are made."""

from typing import Any

from lmsweep.config.evaluation import EvaluationConfig
from lmsweep.config.measurement import Measurement
from lmsweep.errors import ConfigError
from lmsweep.evaluation.jobs import Runs
from lmsweep.evaluation.runs import StoredRun, check_transfer, cross_entropy_source, find_run


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


def measure_attack(measurement: Measurement, runs: Runs) -> dict[str, Any]:
    """The accuracy of every target over the attack's strengths."""
    from lmsweep.attacks import attack_curve, transfer_curves
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    config = measurement.config
    if not isinstance(config, EvaluationConfig):
        raise TypeError(f"{type(config).__name__} describes no attack")
    device, attack = device_of(config), config.attack
    source = load_run(runs[measurement.source or measurement.targets[0]], config.root, device)
    batches = batches_of(config, source.data)
    if measurement.source is None:
        stop = measurement.frozen["attack"].get("early_stop", False)
        found = attack_curve(source.network, batches, attack, seed=config.seed, early_stop=stop)
        curves = {measurement.targets[0]: found}
    else:
        networks = {
            name: source.network
            if name == measurement.source
            else load_run(runs[name], config.root, device).network
            for name in measurement.targets
        }
        curves = transfer_curves(source.network, networks, batches, attack, seed=config.seed)
    return {"unit": attack.unit, "curves": {name: curve.to_dict() for name, curve in curves.items()}}
