"""The calibration of the audit: what is true, which limits are best, and that fresh networks are fresh."""

import pytest
import torch
from torch import nn

from benchmarks.audit_calibration import EPSILON, chosen, report, right_verdict, verdict
from benchmarks.audit_networks import CHOOSING, FRESH, Trick, first, images, make_network, train, trained
from benchmarks.audit_truth import truth, truth_measured
from lmsweep.attacks.measures.indicators import ADVICE
from lmsweep.attacks.measures.masking import Evidence

LIMITS = {"gap": 0.05, **dict.fromkeys(ADVICE, 0.05), "transfer_failure": 1.0}


def line(*, left: float, unhidden: float, worst: float, hidden: float, cell: str = "a", seed: int = 0):
    """A network for which IFGSM claims 80%, as the calibration keeps it."""
    evidence = Evidence(
        epsilons=(EPSILON,),
        clean=0.9,
        curves={"ifgsm": [0.8]},
        worst=[worst],
        indicators={**dict.fromkeys(ADVICE.keys() - {"saturated"}, 0.0), "hidden_gradients": hidden},
        saturated=0.0,
        samples=100,
    )
    return {"cell": cell, "seed": seed, "evidence": evidence.to_dict(), "left": left, "unhidden": unhidden}


@pytest.mark.parametrize(
    ("left", "unhidden", "expected"),
    [
        (0.75, 0.8, "consistent"),  # five points are not over five
        (0.74, 0.8, "attack too weak to say"),
        (0.4, 0.75, "attack too weak to say"),
        (0.4, 0.74, "gradients masked"),
        (0.76, 0.4, "consistent"),
    ],
)
def test_the_truth_is_about_the_gap_first_and_then_about_what_is_hidden(left, unhidden, expected):
    assert truth(0.8, left, unhidden) == expected


def test_limits_are_chosen_for_the_most_right_verdicts_and_the_least_change():
    lines = [
        line(left=0.5, unhidden=0.7, worst=0.5, hidden=0.041),  # masked, and the sign is a little low
        line(left=0.5, unhidden=0.79, worst=0.5, hidden=0.01),
        line(left=0.79, unhidden=0.8, worst=0.79, hidden=0.0),
    ]
    assert [verdict(one, LIMITS) == right_verdict(one) for one in lines] == [False, True, True]
    best = chosen(lines, LIMITS)
    assert best == {**LIMITS, "hidden_gradients": 0.04}
    assert all(verdict(one, best) == right_verdict(one) for one in lines)


def test_the_report_counts_verdicts_by_truth_and_names_what_is_wrong():
    lines = [
        line(left=0.5, unhidden=0.7, worst=0.5, hidden=0.0, cell="b", seed=1),
        line(left=0.5, unhidden=0.7, worst=0.5, hidden=0.1, cell="b", seed=2),
        line(left=0.79, unhidden=0.8, worst=0.79, hidden=0.0),
    ]
    said = list(report(lines, LIMITS))
    assert said[2] == "truth gradients masked: consistent 0, attack too weak to say 1, gradients masked 1"
    assert said[3].startswith("right 2 of 3: 66.7%")
    assert said[4].startswith("right about whether IFGSM claims too much 3 of 3")
    assert said[5].startswith("wrong: b, seed 1: attack too weak to say, truth gradients masked")
    assert said[6].startswith("seeds differ: b: ['attack too weak to say', 'gradients masked']")
    assert len(said) == 7


def test_no_fresh_network_is_one_of_those_that_limits_are_chosen_with():
    assert not CHOOSING.keys() & FRESH.keys()
    known = [(cell.data, cell.way, cell.trick) for cell in CHOOSING.values()]
    assert all((cell.data, cell.way, cell.trick) not in known for cell in FRESH.values())
    seeds = {seed for cell in CHOOSING.values() for seed in cell.seeds}
    assert all(not seeds & set(cell.seeds) for cell in FRESH.values())
    assert sum(len(cell.seeds) for cell in FRESH.values()) >= 30


def test_a_network_is_trained_once(tmp_path, monkeypatch):
    cell = FRESH["digits, linf 1, all layers, first order"]
    short = cell.__class__("digits", first(2, 1.0, all_layers=True, steps=3), {"scale": 2.0}, (0,))
    one = trained("digits, a", short, 5, tmp_path)
    monkeypatch.setattr("benchmarks.audit_networks.train", None)  # calling it would fail
    again = trained("digits, a", short, 5, tmp_path)
    x = images("digits")[1][0][:5]
    assert torch.equal(one(x), again(x))
    torch.testing.assert_close(one(x), 2 * one.network(x))


@pytest.fixture(scope="module")
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = make_network("digits", 1.0)
        way = CHOOSING["digits, xent, 150 steps"].way
        return train(fresh, way, *images("digits")[0], seed=0, rate=0.003).eval().requires_grad_(False)


@pytest.mark.parametrize("trick", [{"scale": 1e4}, {"levels": 8}])
def test_the_truth_sees_through_tricks(network, trick):
    x, y = (part[:40] for part in images("digits")[1])
    model = Trick(network, **trick)
    known = truth_measured(model, x, y, 0.9, epsilon=EPSILON, alpha=0.01, oracle=False)
    plain = truth_measured(Trick(network), x, y, 0.9, epsilon=EPSILON, alpha=0.01, oracle=False)
    assert abs(known["unhidden"] - plain["unhidden"]) <= 0.15
    assert truth(0.9, known["left"], known["unhidden"]) == "gradients masked"
