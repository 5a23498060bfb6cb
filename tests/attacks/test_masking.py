"""The audit's verdicts, on networks whose gradients are known to be sound or masked."""

import functools
from dataclasses import replace

import pytest
import torch
from torch import nn

from lmsweep.attacks import FGSM, IFGSM, PGD, RandomSearch, masking
from lmsweep.attacks.masking import Evidence, Thresholds, judge, measure
from tests.attacks.conftest import Scaled

THRESHOLDS = Thresholds(tolerance=0.05, other_loss=0.1, more_steps=0.25, zero_gradients=0.05, unbounded=0.05)
SOUND = Evidence(
    epsilons=(0.1, 0.2),
    clean=0.95,
    fgsm=[0.6, 0.3],
    ifgsm=[0.5, 0.1],
    ifgsm_margin=[0.5, 0.1],
    pgd=[0.48, 0.08],
    search=[0.5, 0.1],
    transfer=[0.8, 0.6],
    unbounded=0.0,
    zero_gradients=0.0,
    saturated=0.0,
    samples=200,
)


def examine(model, test_set, source=None):
    data = [(test_set[0][:150], test_set[1][:150])]
    return measure(
        model,
        data,
        epsilons=(0.3, 0.1, 0.2),
        alpha=0.02,
        pgd_steps=20,
        restarts=2,
        queries=150,
        unbounded_alpha=0.05,
        source=source,
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_plain_networks_are_consistent(nets, test_set, seed):
    evidence = examine(nets[seed], test_set, source=nets[(seed + 1) % 3])
    assert evidence.epsilons == (0.1, 0.2, 0.3)
    assert evidence.transfer is not None
    verdict, reasons = judge(evidence, THRESHOLDS)
    assert verdict == "consistent", reasons


def test_saturated_networks_are_masked_and_the_reasons_say_why(nets, test_set):
    verdict, reasons = judge(examine(Scaled(nets[0], 1e4), test_set, source=nets[1]), THRESHOLDS)
    assert verdict == "gradients masked"
    text = " | ".join(reasons)
    for part in ("exactly zero", "logit margin", "without gradients", "transfer", "every image is allowed"):
        assert part in text


def test_a_network_that_rounds_its_input_is_masked(net, test_set):
    class Rounding(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(torch.round(x * 16) / 16)  # no gradient, the same decisions on the digits

    verdict, reasons = judge(examine(Rounding(), test_set), THRESHOLDS)
    assert verdict == "gradients masked"
    assert any("without gradients" in reason for reason in reasons)


def test_sound_evidence_is_consistent():
    verdict, reasons = judge(SOUND, THRESHOLDS)
    assert verdict == "consistent"
    assert not any("transfer" in reason for reason in reasons)
    assert any("transfer was not tested" in r for r in judge(replace(SOUND, transfer=None), THRESHOLDS)[1])


SIGNS = {
    "exactly zero for 6.0%": {"zero_gradients": 0.06},
    "logit margin leaves 39.0% accuracy at epsilon 0.1": {"ifgsm_margin": [0.39, 0.1]},
    "PGD with restarts leaves 50.0%": {
        "fgsm": [0.8, 0.3],
        "ifgsm": [0.8, 0.1],
        "ifgsm_margin": [0.8, 0.1],
        "pgd": [0.5, 0.1],
    },
    "without gradients leaves 42.0%": {"search": [0.42, 0.1]},
    "transfer leaves 2.0% accuracy at epsilon 0.2": {"transfer": [0.8, 0.02]},
    "a single step (FGSM) leaves 44.0%": {"fgsm": [0.44, 0.3]},
    "20.0% accuracy at epsilon 0.2, more than the 10.0%": {
        "ifgsm": [0.1, 0.2],
        "ifgsm_margin": [0.1, 0.2],
        "pgd": [0.1, 0.1],
    },
    "leaves 20.0% accuracy when every image": {"unbounded": 0.2},
}


@pytest.mark.parametrize("words", SIGNS)
def test_each_sign_alone_is_enough(words):
    verdict, reasons = judge(replace(SOUND, **SIGNS[words]), THRESHOLDS)
    assert verdict == "gradients masked"
    assert len(reasons) == 1
    assert words in reasons[0]


def test_every_argument_reaches_its_attack(nets, test_set, monkeypatch):
    seen = []

    def spy(*arguments, curve, **options):
        seen.append((arguments[-1], options.get("seed"), options.get("early_stop")))
        return curve(*arguments, **options)

    for name in ("attack_curve", "transfer_curves"):
        monkeypatch.setattr(masking, name, functools.partial(spy, curve=getattr(masking, name)))
    measure(
        nets[0],
        [(test_set[0][:5], test_set[1][:5])],
        epsilons=(0.2, 0.1),
        alpha=0.05,
        pgd_steps=3,
        restarts=2,
        queries=4,
        unbounded_alpha=0.5,
        seed=7,
        source=nets[1],
    )
    assert seen == [
        (FGSM(epsilons=(0.1, 0.2)), 7, False),
        (IFGSM(epsilons=(0.1, 0.2), alpha=0.05), 7, False),
        (IFGSM(epsilons=(0.1, 0.2), alpha=0.05, loss="margin"), None, False),
        (PGD(epsilons=(0.1, 0.2), steps=3, restarts=2), 7, None),
        (RandomSearch(epsilons=(0.1, 0.2), queries=4), 7, None),
        (IFGSM(epsilons=(1.0,), alpha=0.5), None, None),
        (IFGSM(epsilons=(0.1, 0.2), alpha=0.05), 7, None),
    ]
