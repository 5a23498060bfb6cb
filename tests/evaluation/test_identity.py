"""What makes two evaluations out of one: all that can change the result, and nothing else."""

import copy
import functools

import pytest

from lmsweep.attacks.measures.indicators import ADVICE
from lmsweep.config.evaluation import AuditConfig, EvaluationConfig, Measurement, parse_as
from tests.evaluation.conftest import composed

# Another value for every key, and by attack the keys that count.
CHANGES = {
    "checkpoint": "last",
    "split": "val",
    "samples": 7,
    "batch_size": 3,
    "seed": 3,
    "accelerator": "cpu",
    "threads": 2,
    "root": "elsewhere",
    "trust": "mine",
    "outputs": "elsewhere",
    "source": "xent",
    "attack.epsilons": [0.25],
    "attack.stddevs": [9.0],
    "attack.loss": "margin",
    "attack.target": "least_likely",
    "attack.alpha": 0.02,
    "attack.steps": 90,
    "attack.restarts": 7,
    "attack.queries": 5,
    "attack.clip_pixels": False,
    "attack.early_stop": False,
    "attack.norm": "l1",
    "attack.targets": 2,
    "attack.apgd_steps": 7,
    "attack.minimal_steps": 7,
    "attack.version": "rand",
    "tracking.name": "wandb",
}
SAMPLES = {"checkpoint", "split", "samples", "batch_size"}
ALWAYS = SAMPLES | {"attack.clip_pixels"}
AIMED = ALWAYS | {"attack.epsilons", "attack.target", "attack.early_stop"}
BALL = SAMPLES | {"seed", "attack.epsilons", "attack.norm", "attack.early_stop"}
ENSEMBLE = {f"attack.{key}" for key in ("apgd_steps", "restarts", "targets", "minimal_steps", "queries")}
COUNTS = {
    "fgsm": AIMED | {"attack.loss"},
    "ifgsm": AIMED | {"attack.loss", "attack.alpha", "attack.steps"},
    "pgd": AIMED | {"seed", "attack.loss", "attack.alpha", "attack.steps", "attack.restarts", "attack.norm"},
    "search": AIMED | {"seed", "attack.queries"},
    "gaussian": ALWAYS | {"seed", "attack.stddevs"},
    "apgd": BALL | {"attack.loss", "attack.steps", "attack.restarts", "attack.targets"},
    "minimal": BALL | {"attack.steps"},
    "ensemble": BALL | ENSEMBLE,
    "autoattack": BALL | {"attack.version"},
}
AUDIT_CHANGES = {
    **{key: CHANGES[key] for key in ("checkpoint", "split", "samples", "batch_size", "seed")},
    **{"accelerator": "cpu", "threads": 2},
    **{"root": "elsewhere", "trust": "mine", "outputs": "elsewhere", "source": "none"},
    **{"epsilons": [0.25], "alpha": 0.02, "unbounded_alpha": 0.1},
    **{
        key: CHANGES[key]
        for key in (*sorted(ENSEMBLE), "attack.epsilons", "attack.norm", "attack.early_stop")
    },
    **{f"thresholds.{name}": 0.5 for name in ("gap", *ADVICE)},
}
AUDIT_COUNTS = SAMPLES | ENSEMBLE | {"seed", "epsilons", "alpha", "unbounded_alpha"}
AUDIT_COUNTS |= {"attack.epsilons", "attack.norm", "attack.early_stop"}


@functools.cache
def plain(name: str, *overrides: str):
    return composed(name, "outputs", "runs=[a]", *overrides)


def changed(config, key: str, value):
    config = copy.deepcopy(config)
    *parents, last = key.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    assert node[last] != value
    node[last] = value
    return config


def keys_of(config, prefix: str = "") -> set[str]:
    return {
        inner
        for key, value in config.items()
        for inner in (keys_of(value, f"{key}.") if isinstance(value, dict) else [prefix + key])
    }


def identity_dict(config, *, transfer: bool = False):
    return parse_as(EvaluationConfig, config).identity_dict(transfer=transfer)


def test_the_tables_have_every_key():
    keys = set().union(*(keys_of(plain("evaluation", f"attack={kind}")) for kind in COUNTS))
    assert keys - {"runs", "attack.kind", "attack.snrs"} == set(CHANGES)
    assert keys_of(plain("audit")) - {"runs", "attack.kind"} == set(AUDIT_CHANGES)


@pytest.mark.parametrize("key", CHANGES)
@pytest.mark.parametrize("kind", COUNTS)
def test_a_key_counts_when_the_attack_uses_it(kind, key):
    config = plain("evaluation", f"attack={kind}")
    if key not in keys_of(config):  # nothing an attack does not use is among its keys
        assert key not in COUNTS[kind]
        return
    other = changed(config, key, CHANGES[key])
    assert (identity_dict(other) != identity_dict(config)) == (key in COUNTS[kind])
    counts = COUNTS[kind] - {"attack.early_stop"}  # examples for others never stop early
    differs = identity_dict(other, transfer=True) != identity_dict(config, transfer=True)
    assert differs == (key in counts)


def test_the_kind_of_an_attack_counts():
    assert identity_dict(plain("evaluation", "attack=fgsm")) != identity_dict(plain("evaluation"))


def test_with_snr_budgets_they_count_instead_of_epsilons():
    config = plain("evaluation", "attack=ifgsm", "attack.snrs=[33]")
    for key in ("attack.epsilons", "attack.early_stop"):
        assert identity_dict(changed(config, key, CHANGES[key])) == identity_dict(config)
    assert identity_dict(config)["attack"]["snrs"] == [33]
    for key in ("attack.snrs", "attack.alpha", "attack.steps"):
        other = changed(config, key, CHANGES.get(key, [20.0]))
        assert identity_dict(other) != identity_dict(config)
    given = plain("evaluation", "attack=ifgsm", "attack.snrs=[33]", "attack.steps=5")
    assert identity_dict(changed(given, "attack.alpha", 0.5)) == identity_dict(given)


@pytest.mark.parametrize("key", AUDIT_CHANGES)
def test_a_key_of_the_audit_counts_when_it_changes_the_evidence(key):
    config = plain("audit")
    one, other = (
        Measurement("audit", parse_as(AuditConfig, values), ("run",)).frozen
        for values in (config, changed(config, key, AUDIT_CHANGES[key]))
    )
    assert (one != other) == (key in AUDIT_COUNTS)


def test_targets_source_and_kind_of_a_measurement_count():
    config = parse_as(EvaluationConfig, {**plain("evaluation"), "runs": ["a"]})
    wanted = [
        Measurement("attack", config, ("a",)),
        Measurement("attack", config, ("b",)),
        Measurement("attack", config, ("a",), "a"),
        Measurement("attack", config, ("a",), "b"),
        Measurement("attack", config, ("a", "b"), "b"),
        Measurement("audit", config, ("a",)),
        Measurement("attack", config.model_copy(update={"samples": 3}), ("a",)),
    ]
    assert len({one.id for one in wanted}) == len(wanted)
    assert Measurement("attack", config.model_copy(update={"runs": ["b"]}), ("a",)).id == wanted[0].id
