"""The audit's verdicts, on networks whose gradients are known to be sound or masked."""

import functools
from dataclasses import replace

import pytest
import torch
from torch import nn

from lmsweep.attacks import FGSM, IFGSM, Ensemble, masking
from lmsweep.attacks.attack import Clean
from lmsweep.attacks.measures.indicators import ADVICE, incomplete_optimisation, unstable_predictions
from lmsweep.attacks.measures.masking import Evidence, judge, measure, steady
from tests.attacks.conftest import Scaled

THRESHOLDS = {
    "gap": 0.1,  # steps as long as here cost IFGSM some points
    "hidden_gradients": 0.05,
    "zero_gradients": 0.05,
    "saturated": 0.1,
    "unstable_predictions": 0.1,
    "silent_success": 0.05,
    "incomplete_optimisation": 0.1,
    "transfer_failure": 1.0,
    "unconstrained_fails": 0.05,
    "every_unconstrained_fails": 0.05,
    "gradient_free_wins": 0.05,
}
SOUND = Evidence(
    epsilons=(0.1, 0.2),
    clean=0.95,
    curves={"fgsm": [0.6, 0.3], "ifgsm": [0.5, 0.1], "apgd_margin": [0.48, 0.08], "search": [0.5, 0.1]},
    worst=[0.47, 0.07],
    indicators={**dict.fromkeys(ADVICE.keys() - {"saturated"}, 0.0), "transfer_failure": 0.3},
    saturated=0.0,
    samples=200,
)
FEW = Ensemble(epsilons=(9.0,), apgd_steps=20, targets=2, minimal_steps=20, queries=60)


class Rounding(nn.Module):
    """No gradient at all, and the same decisions on the digits."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(torch.round(x * 16) / 16)


class Noisy(nn.Module):
    """Another answer each time."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x + 0.3 * torch.randn_like(x))


def examine(model, test_set, source=None, attack=FEW):
    data = [(test_set[0][:100], test_set[1][:100])]
    return measure(
        model, data, epsilons=(0.2, 0.1), alpha=0.02, unbounded_alpha=0.05, attack=attack, source=source
    )


@pytest.fixture(scope="module")
def sound(nets, test_set):
    return examine(nets[0], test_set, source=nets[1])


@pytest.fixture(scope="module")
def saturated(nets, test_set):
    return examine(Scaled(nets[0], 1e4), test_set, source=nets[1])


def test_a_plain_network_is_consistent(sound):
    assert sound.epsilons == (0.1, 0.2)
    assert list(sound.curves) == [
        *("fgsm", "ifgsm", "ifgsm_log_odds", "apgd_margin", "apgd_xent"),
        *("minimal", "apgd_targeted", "search", "transfer"),
    ]
    for curve in sound.curves.values():
        assert all(left <= accuracy for left, accuracy in zip(sound.worst, curve, strict=True))
    assert sound.worst[0] >= sound.worst[1]
    verdict, reasons = judge(sound, THRESHOLDS)
    assert verdict == "consistent", reasons
    # Nothing is hidden, so nothing is gained, but for a few roundings.
    assert sound.indicators["hidden_gradients"] <= 0.01


def test_a_saturated_network_is_masked_and_the_reasons_say_why_and_what_to_do(saturated, sound):
    verdict, reasons = judge(saturated, THRESHOLDS)
    assert verdict == "gradients masked"
    text = " | ".join(reasons)
    for part in ("worst of all attacks", "exactly zero", "every image is allowed", "logit margin or DLR"):
        assert part in text
    assert saturated.indicators["zero_gradients"] > 0.9
    assert saturated.indicators["every_unconstrained_fails"] == 0
    assert saturated.indicators["hidden_gradients"] > 0.3
    # The factor hides the gradient of cross-entropy from IFGSM and nothing from the others.
    assert max(abs(a - b) for a, b in zip(saturated.worst, sound.worst, strict=True)) <= 0.03


def test_a_network_that_rounds_its_input_is_masked(net, test_set):
    evidence = examine(Rounding(net), test_set)
    verdict, reasons = judge(evidence, THRESHOLDS)
    assert verdict == "gradients masked"
    assert evidence.indicators["gradient_free_wins"] > 0.05
    assert any("without gradients" in reason for reason in reasons)
    # With too few queries nothing is found, and nothing may be concluded from that.
    weak = FEW.model_copy(update={"queries": 1})
    evidence = replace(examine(Rounding(net), test_set, attack=weak), worst=evidence.curves["ifgsm"])
    assert judge(evidence, THRESHOLDS)[0] == "attack too weak to say"


def test_a_network_that_draws_is_judged_by_its_mean_and_its_gradient_is_averaged(net, test_set):
    data = [(test_set[0][:60], test_set[1][:60])]
    noisy = Noisy(net)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = torch.random.get_rng_state()
        attacked, answering = steady(noisy, data, seed=3)
        assert attacked is not noisy
        assert torch.equal(answering(data[0][0]), answering(data[0][0]))
        assert not torch.equal(answering(data[0][0]), attacked(data[0][0]))
        assert torch.equal(torch.random.get_rng_state(), before)
        few = FEW.model_copy(update={"queries": 20, "apgd_steps": 8, "minimal_steps": 8, "targets": 1})
        evidence = measure(noisy, data, epsilons=(0.1,), alpha=0.02, unbounded_alpha=0.1, attack=few)
    # One lucky draw is no success, so not every wrong answer of a single draw counts.
    assert evidence.clean > 0.8
    assert evidence.indicators["unstable_predictions"] < 0.5
    assert steady(net, data, seed=3) == (net, net)


def test_predictions_are_unstable_where_the_network_draws(net, test_set):
    x, y = test_set[0][:50], test_set[1][:50]
    assert not unstable_predictions(net, x, y).any()
    assert not unstable_predictions(Scaled(net, 1e4), x, y).any()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert unstable_predictions(Noisy(net), x, y).float().mean() > 0.9


def test_ascents_that_were_cut_short_are_incomplete(net, test_set):
    x, y = test_set[0][:60], test_set[1][:60]
    with torch.no_grad():
        clean = Clean(x, y, net(x))
    counts = {steps: incomplete_optimisation(net, clean, epsilon=0.05, steps=steps) for steps in (5, 12, 100)}
    assert counts[5] == (counts[5][0], 0)  # fewer than ten steps say nothing
    assert counts[12][1] > counts[100][1]
    assert counts[100][0] <= counts[12][0]


def test_sound_evidence_is_consistent():
    verdict, reasons = judge(SOUND, THRESHOLDS)
    assert verdict == "consistent"
    assert not any("transfer" in reason for reason in reasons)
    untested = replace(SOUND, indicators={**SOUND.indicators, "transfer_failure": None})
    assert any("transfer was not tested" in reason for reason in judge(untested, THRESHOLDS)[1])


@pytest.mark.parametrize("name", ADVICE)
def test_each_sign_is_named_with_its_value_and_advice(name):
    value = {"saturated": 0.237} if name == "saturated" else {"indicators": {**SOUND.indicators, name: 0.237}}
    evidence = replace(SOUND, **value)
    thresholds = {**THRESHOLDS, "gap": 0.05, "transfer_failure": 0.05}
    weak = name in masking.OF_THE_STRONGEST
    verdict, reasons = judge(evidence, thresholds)
    assert verdict == ("attack too weak to say" if weak else "consistent")
    assert any("23.7%" in reason and ADVICE[name][1] in reason for reason in reasons)
    masked, reasons = judge(replace(evidence, worst=[0.47, 0.04]), thresholds)
    # IFGSM may be weaker without any fault of the gradients.
    assert masked == ("gradients masked" if name in masking.OF_MASKING else "attack too weak to say")
    assert "leaves 10.0% accuracy at epsilon 0.2, where the worst of all attacks leaves 4.0%" in reasons[0]
    assert any("23.7%" in reason for reason in reasons[1:])


def test_every_argument_reaches_its_attack(nets, test_set, monkeypatch):
    seen = []

    def spy(*arguments, curve, **options):
        assert arguments[0] is nets[0] or arguments[0] is nets[1]
        seen.append((arguments[-1], options.get("seed"), options.get("early_stop")))
        return curve(*arguments, **options)

    for name in ("attack_curve", "transfer_curves"):
        monkeypatch.setattr(masking, name, functools.partial(spy, curve=getattr(masking, name)))
    small = {"apgd_steps": 2, "targets": 1, "minimal_steps": 2, "queries": 3}
    measure(
        nets[0],
        [(test_set[0][:5], test_set[1][:5])],
        epsilons=(0.2, 0.1),
        alpha=0.05,
        unbounded_alpha=0.5,
        attack=Ensemble(epsilons=(9.0,), **small),
        seed=7,
        source=nets[1],
    )
    strong = Ensemble(epsilons=(0.1, 0.2), **small)
    claim = IFGSM(epsilons=(0.1, 0.2), alpha=0.05)
    expected = [(FGSM(epsilons=(0.1, 0.2)), 7, False), (claim, 7, False), (claim, 7, True)]
    expected += [(claim.model_copy(update={"loss": "log_odds"}), 7, False)]
    expected += [(member, 7, True) for member in strong.members().values()]
    expected += [(IFGSM(epsilons=(1.0,), alpha=0.5), 7, True)]
    assert seen[: len(expected)] == expected
    assert seen[-1] == (claim, 7, None)
