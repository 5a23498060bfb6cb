"""Minimal-norm distances where the true distance is known, and their agreement with the linearised ones."""

import pytest
import torch
from torch import nn

from lmsweep.attacks.measures.distances import compare_distances
from lmsweep.attacks.minimal import class_distances, minimal_examples

DUAL = {"l1": float("inf"), "l2": 2.0, "linf": 1.0}


@pytest.fixture(scope="module")
def linear():
    """A linear network whose nearest boundaries lie well inside the pixel range."""
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(16, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(3, 16, generator=generator))
        layer.bias.zero_()
    x = 0.5 + 0.05 * torch.randn(40, 1, 4, 4, generator=generator)
    model = nn.Sequential(nn.Flatten(), layer)
    y = model(x - 0.5).argmax(1)
    layer.bias.data -= layer.weight.detach().sum(1) * 0.5
    return model, x, y


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_linear_boundaries_are_found_at_their_distance(linear, norm):
    model, x, y = linear
    weight, logits = model[1].weight, model(x)
    exact = torch.full((len(x),), torch.inf)
    for i in range(len(x)):
        for j in range(3):
            if j != y[i]:
                gap = (weight[y[i]] - weight[j]).norm(p=DUAL[norm])
                exact[i] = min(exact[i], (logits[i, y[i]] - logits[i, j]).item() / gap.item())
    torch.testing.assert_close(class_distances(model, x, y, norm).amin(1), exact, rtol=1e-3, atol=1e-5)
    _, found = minimal_examples(model, x, y, norm=norm, steps=100)
    assert (found >= exact * 0.999).all()
    assert (found <= exact * 1.05 + 0.003).all()


def test_misclassified_samples_have_distance_zero_and_are_left_out(linear):
    model, x, y = linear
    wrong = y.clone()
    wrong[:5] = (y[:5] + 1) % 3
    assert (minimal_examples(model, x, wrong, norm="l2", steps=50)[1][:5] == 0).all()
    agreement = compare_distances(model, [(x, wrong)], norm="l2", steps=50)
    assert (agreement["misclassified"], agreement["samples"], len(agreement["found"])) == (5, 35, 35)
    assert agreement["rank_correlation"] > 0.99


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_the_linearised_distance_ranks_the_samples_of_a_network(net, test_set, norm):
    agreement = compare_distances(net, [(test_set[0][:60], test_set[1][:60])], norm=norm, steps=60)
    assert agreement["not_found"] == 0
    assert agreement["rank_correlation"] > 0.75
    assert 0.9 < agreement["median_ratio"] < 1.4


def test_an_unknown_norm_is_refused(net, test_set):
    with pytest.raises(ValueError, match="l1, l2, linf"):
        minimal_examples(net, *test_set, norm="l3")
