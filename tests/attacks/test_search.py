"""The search without gradients: as strong as the optimum where that is known, and blind to saturation."""

import copy

import pytest
import torch
from torch import nn

from lmsweep.attacks import PGD, RandomSearch, attack_curve, random_search, transfer_curves
from lmsweep.attacks.attack import Clean
from lmsweep.attacks.search import share_of_pixels
from lmsweep.attacks.trajectory import logit_margin
from lmsweep.margin.temporary import frozen
from tests.attacks.conftest import Counter, Scaled


def test_it_comes_near_the_optimum_of_a_linear_network():
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(36, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(2, 36, generator=generator))
        linear.bias.copy_(torch.tensor([60.0, 0.0]))  # no example crosses, so that the search goes on
    model = nn.Sequential(nn.Flatten(), linear)
    x = torch.full((8, 1, 6, 6), 0.5)
    y = torch.zeros(8, dtype=torch.long)
    found = random_search(model, x, y, epsilon=0.1, queries=600)
    gain = logit_margin(model(found), y) - logit_margin(model(x), y)
    best = 0.1 * (linear.weight[1] - linear.weight[0]).abs().sum()
    assert (gain > 0.9 * best).all()
    assert (gain <= best + 1e-4).all()


def test_it_is_about_as_strong_as_pgd_on_small_images(net, test_set):
    # Enough queries and samples for the difference to be two of the twelve samples that are allowed.
    search = attack_curve(net, [test_set], RandomSearch(epsilons=(0.1, 0.2), queries=1000)).accuracy
    pgd = attack_curve(net, [test_set], PGD(epsilons=(0.1, 0.2), steps=30, restarts=2)).accuracy
    for found, reference in zip(search, pgd, strict=True):
        assert abs(found - reference) <= 0.06


def test_saturated_logits_do_not_matter_to_it(net, test_set):
    data = [(test_set[0][:100], test_set[1][:100])]
    plain = attack_curve(net, data, RandomSearch(epsilons=(0.1,), queries=100))
    saturated = attack_curve(Scaled(net, 2.0**14), data, RandomSearch(epsilons=(0.1,), queries=100))
    assert torch.equal(plain.correct, saturated.correct)


def test_a_seed_repeats_it_and_the_squares_shrink(net, test_set):
    x, y = test_set[0][:20], test_set[1][:20]
    one = random_search(net, x, y, epsilon=0.1, queries=20, seed=1)
    assert torch.equal(one, random_search(net, x, y, epsilon=0.1, queries=20, seed=1))
    assert not torch.equal(one, random_search(net, x, y, epsilon=0.1, queries=20, seed=2))
    shares = [share_of_pixels(q, 100) for q in range(100)]
    assert shares == sorted(shares, reverse=True)
    # The published schedule: 0.8, halved after these of 10,000 queries.
    assert shares[0] == 0.8
    assert shares[-1] == 0.8 / 2**9
    assert [q for q in range(1, 10_000) if share_of_pixels(q, 10_000) < share_of_pixels(q - 1, 10_000)] == [
        *(11, 51, 201, 501, 1001, 2001, 4001, 6001, 8001)
    ]


@pytest.mark.parametrize(("targeted", "epsilon"), [(False, 0.2), (True, 0.7)])
def test_examples_for_other_networks_go_on_after_the_source_is_fooled(nets, test_set, targeted, epsilon):
    x, y = test_set[0][:60], test_set[1][:60]
    attack = RandomSearch(epsilons=(epsilon,), queries=60, target="least_likely" if targeted else "none")
    found = {}
    for early_stop in (True, False):
        with frozen(nets[0]):
            clean = Clean(x, y, nets[0](x).detach())
            (found[early_stop],) = attack.examples(nets[0], clean, seed=0, early_stop=early_stop)
    labels, _ = clean.aim(attack.target)
    margins = {key: logit_margin(nets[0](examples.x), labels).detach() for key, examples in found.items()}
    gain = (margins[False] - margins[True]) * (-1 if targeted else 1)
    assert (found[False].settled == -1).all()
    assert (gain >= -1e-5).all()
    stopped = found[True].settled >= 0
    assert stopped.any()
    assert gain[stopped].mean() > 1
    assert torch.equal(
        random_search(nets[0], x, labels, epsilon=epsilon, queries=60, targeted=targeted), found[False].x
    )


def test_transfer_spends_every_query_on_every_sample(nets, test_set):
    source = Counter(nets[0])
    data = [(test_set[0][:50], test_set[1][:50])]
    transfer_curves(source, {"target": nets[1]}, data, RandomSearch(epsilons=(0.3,), queries=30))
    assert source.forwards == (1 + 30) * 50


def test_networks_in_float64_can_be_searched(net, test_set):
    precise = copy.deepcopy(net).double()
    x, y = test_set[0][:50].double(), test_set[1][:50]
    curve = attack_curve(precise, [(x, y)], RandomSearch(epsilons=(0.2,), queries=20))
    assert curve.accuracy[0] < curve.to_dict()["clean_accuracy"]
    assert random_search(precise, x, y, epsilon=0.2, queries=20).dtype == torch.float64
