"""Scores of unlabelled images: against the definitions in plain loops, and what must hold of any of them."""

import doctest
import math

import pytest
import torch

from lmsweep.training import acquisition
from lmsweep.training.acquisition import bald_scores, max_entropy_scores

PASSES, IMAGES, CLASSES = 7, 40, 5


@pytest.fixture(params=[0.1, 1.0, 20.0], ids=["unsure", "mixed", "sure"])
def probabilities(request):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(PASSES, IMAGES, CLASSES, generator=generator, dtype=torch.float64)
    return (request.param * logits).softmax(-1)


def mutual_information(p):
    """Of the label and the pass, all passes alike: the sum of p(y, t) log(p(y, t) / (p(y) p(t)))."""
    marginal = [sum(row[c] for row in p) / len(p) for c in range(len(p[0]))]
    return sum(
        row[c] / len(p) * math.log(row[c] / marginal[c]) for row in p for c in range(len(row)) if row[c] > 0
    )


def test_bald_is_the_mutual_information_of_label_and_pass(probabilities):
    direct = [mutual_information(probabilities[:, i].tolist()) for i in range(IMAGES)]
    assert bald_scores(probabilities).tolist() == pytest.approx(direct, rel=1e-9, abs=1e-12)


def test_max_entropy_is_the_entropy_of_the_mean_prediction(probabilities):
    direct = []
    for i in range(IMAGES):
        mean = [math.fsum(column) / PASSES for column in zip(*probabilities[:, i].tolist(), strict=True)]
        direct.append(-math.fsum(p * math.log(p) for p in mean))
    assert max_entropy_scores(probabilities).tolist() == pytest.approx(direct, rel=1e-9)


def test_bald_is_between_zero_and_the_entropy(probabilities):
    bald, entropy = bald_scores(probabilities), max_entropy_scores(probabilities)
    assert (bald >= 0).all()
    assert (bald <= entropy).all()
    assert (entropy <= math.log(CLASSES) + 1e-12).all()


def test_bald_is_zero_where_all_passes_agree(probabilities):
    agreed = probabilities[:1].expand(PASSES, -1, -1)
    assert bald_scores(agreed).max() < 1e-12


def test_the_order_of_passes_is_no_matter(probabilities):
    shuffled = probabilities[torch.randperm(PASSES, generator=torch.Generator().manual_seed(1))]
    torch.testing.assert_close(bald_scores(shuffled), bald_scores(probabilities), rtol=1e-9, atol=1e-12)


def test_certain_predictions_give_numbers():
    classes = torch.tensor([[0, 1], [0, 2]])  # the passes agree on the first image
    sure = torch.eye(3, dtype=torch.float64)[classes]
    assert bald_scores(sure).tolist() == pytest.approx([0, math.log(2)])


def test_the_example_in_the_docstring_runs():
    assert doctest.testmod(acquisition).failed == 0
