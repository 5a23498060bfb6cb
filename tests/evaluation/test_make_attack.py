"""Every key of an attack, the seed and the split reach the measurement."""

import pytest
import torch

import lmsweep.attacks
from lmsweep.attacks import APGD, FGSM, IFGSM, PGD, Ensemble, GaussianNoise, MinimalNorm, RandomSearch
from lmsweep.attacks.autoattack import AutoAttack
from lmsweep.evaluation.measure import load_run
from lmsweep.evaluation.runs import find_run
from tests.evaluation.conftest import evaluate, named, request

# Nothing here is a default.
AIMED = ("attack.epsilons=[0.4,0.1]", "attack.target=least_likely", "attack.clip_pixels=false")
BALL = ("attack.epsilons=[0.4,0.1]", "attack.norm=l2", "attack.early_stop=false")
KEYS = {
    "fgsm": (*AIMED, "attack.loss=margin"),
    "ifgsm": (*AIMED, "attack.loss=margin", "attack.alpha=0.07", "attack.steps=9"),
    "pgd": (
        *AIMED,
        "attack.loss=margin",
        "attack.alpha=0.07",
        "attack.steps=9",
        "attack.restarts=4",
        "attack.norm=l2",
    ),
    "search": (*AIMED, "attack.queries=17"),
    "gaussian": ("attack.stddevs=[0.7]", "attack.clip_pixels=false"),
    "apgd": (*BALL, "attack.loss=dlr_targeted", "attack.steps=9", "attack.restarts=4", "attack.targets=3"),
    "minimal": (*BALL, "attack.steps=9"),
    "ensemble": (
        *BALL,
        *("attack.apgd_steps=9", "attack.restarts=4", "attack.targets=3"),
        *("attack.minimal_steps=8", "attack.queries=17"),
    ),
    "autoattack": (*BALL, "attack.version=plus"),
}
WITHIN = {"epsilons": (0.4, 0.1), "norm": "l2", "early_stop": False}
AIM = {"target": "least_likely", "clip_pixels": False}
MADE = {
    "fgsm": FGSM(epsilons=(0.4, 0.1), loss="margin", **AIM),
    "ifgsm": IFGSM(epsilons=(0.4, 0.1), alpha=0.07, steps=9, loss="margin", **AIM),
    "pgd": PGD(epsilons=(0.4, 0.1), steps=9, alpha=0.07, restarts=4, loss="margin", norm="l2", **AIM),
    "search": RandomSearch(epsilons=(0.4, 0.1), queries=17, **AIM),
    "gaussian": GaussianNoise(stddevs=(0.7,), clip_pixels=False),
    "apgd": APGD(loss="dlr_targeted", steps=9, restarts=4, targets=3, **WITHIN),
    "minimal": MinimalNorm(steps=9, **WITHIN),
    "ensemble": Ensemble(apgd_steps=9, restarts=4, targets=3, minimal_steps=8, queries=17, **WITHIN),
    "autoattack": AutoAttack(version="plus", **WITHIN),
}
BUDGETS = {
    "fgsm": FGSM(epsilons=(0.4, 0.1), snrs=(33.0, 20.0), loss="margin", **AIM),
    "ifgsm": IFGSM(epsilons=(0.4, 0.1), snrs=(33.0, 20.0), alpha=0.07, steps=9, loss="margin", **AIM),
}


@pytest.mark.parametrize("kind", MADE)
def test_every_key_reaches_the_attack(kind):
    assert request("outputs", "runs=[a]", f"attack={kind}", *KEYS[kind]).attack == MADE[kind]


@pytest.mark.parametrize("kind", BUDGETS)
def test_snr_budgets_reach_the_attack(kind):
    keys = (f"attack={kind}", *KEYS[kind], "attack.snrs=[33,20]")
    attack = request("outputs", "runs=[a]", *keys).attack
    assert attack == BUDGETS[kind]
    assert (attack.unit, attack.strengths) == ("snr", (33.0, 20.0))


def test_the_defaults_are_those_of_conf():
    plain = request("outputs", "runs=[a]").attack
    assert plain == IFGSM(epsilons=(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3), alpha=0.01)


@pytest.mark.parametrize("source", ["self", "margin0"])
def test_seed_and_split_reach_the_measurement(runs, monkeypatch, source):
    outputs, ids = runs
    calls = []
    for name in ("attack_curve", "transfer_curves"):
        measure = getattr(lmsweep.attacks, name)

        def spy(*arguments, measure=measure, **options):
            calls.append((arguments, options))
            return measure(*arguments, **options)

        monkeypatch.setattr(lmsweep.attacks, name, spy)
    keys = (
        "attack=search",
        "attack.epsilons=[0.1]",
        "attack.queries=2",
        "seed=41",
        "split=val",
        "samples=90",
    )
    evaluate(request(outputs, named(ids, "xent0"), f"source='{ids.get(source, source)}'", *keys))
    (((*_, batches, attack), options),) = calls
    assert attack == RandomSearch(epsilons=(0.1,), queries=2)
    assert options["seed"] == 41
    data = load_run(find_run(outputs, ids["xent0"]), "data", torch.device("cpu")).data
    assert torch.equal(torch.cat([x for x, _ in batches]), data.val.x[:90])


def test_an_attack_meets_the_best_or_the_last_weights(runs):
    outputs, ids = runs
    run = find_run(outputs, ids["xent0"])
    state = torch.load(run.folder.last, weights_only=True)
    other = {name: -value for name, value in state["state_dict"].items()}  # nothing like the best weights
    torch.save({**state, "state_dict": other}, run.folder.last)
    try:
        for which in ("best", "last"):
            keys = ("attack=fgsm", "attack.epsilons=[0]", "samples=200", f"checkpoint={which}")
            ((_, _, results),) = evaluate(request(outputs, named(ids, "xent0"), *keys))
            loaded = load_run(run, "data", torch.device("cpu"), which)
            test = loaded.data.test
            right = (loaded.network(test.x[:200]).argmax(1) == test.y[:200]).float().mean()
            assert results["curves"][run.id]["accuracy"] == pytest.approx([float(right)])
    finally:
        torch.save(state, run.folder.last)
