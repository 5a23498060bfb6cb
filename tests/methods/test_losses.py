"""Criteria on the logits against naive loops in float64: values and gradients to 1e-9."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmsweep.methods import Step
from lmsweep.methods.losses import (
    Bootstrapping,
    GeneralisedCrossEntropy,
    Hinge,
    Liu,
    OutputMargin,
    SoftMargin,
    SymmetricCrossEntropy,
    angular_margin,
    large_margin_logits,
)

CLASSES = 4


@pytest.fixture
def case():
    torch.manual_seed(0)
    logits = 2 * torch.randn(9, CLASSES, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(0, CLASSES, (9,))


def others(y):
    return [k for k in range(CLASSES) if k != y]


def softmax(row):
    powers = [value.exp() for value in row]
    return [power / sum(powers) for power in powers]


def naive_hinge(row, y):
    return (1 - row[y] + max(row[k] for k in others(y))).clamp_min(0)


def naive_output_margin_nearest(row, y):
    p = softmax(row)
    return (1 - (p[y] - max(p[k] for k in others(y)))) ** 2


def naive_output_margin_all(row, y):
    p = softmax(row)
    return sum((1 - (p[y] - p[k])) ** 2 for k in others(y)) / (CLASSES - 1)


def naive_soft_margin(row, y):
    lowered = (row[y] - 1.5).exp()
    return -(lowered / (lowered + sum(row[k].exp() for k in others(y)))).log()


def naive_bootstrapping_soft(row, y):
    q = softmax(row)
    return -sum((0.8 * (k == y) + 0.2 * q[k]) * q[k].log() for k in range(CLASSES))


def naive_bootstrapping_hard(row, y):
    q = softmax(row)
    best = max(range(CLASSES), key=lambda k: q[k].item())
    return -sum((0.8 * (k == y) + 0.2 * (k == best)) * q[k].log() for k in range(CLASSES))


def naive_gce(row, y):
    return (1 - softmax(row)[y] ** 0.7) / 0.7


def naive_sce(row, y):
    p = softmax(row)
    reverse = -sum(p[k] * (0.0 if k == y else -4.0) for k in range(CLASSES))
    return -0.1 * p[y].log() + 2.0 * reverse


LOSSES = {
    "hinge": (Hinge(), naive_hinge),
    "output_margin nearest": (OutputMargin(weight=1.0, over="nearest"), naive_output_margin_nearest),
    "output_margin all": (OutputMargin(weight=1.0, over="all"), naive_output_margin_all),
    "soft_margin": (SoftMargin(margin=1.5), naive_soft_margin),
    "bootstrapping soft": (Bootstrapping(beta=0.8, kind="soft"), naive_bootstrapping_soft),
    "bootstrapping hard": (Bootstrapping(beta=0.8, kind="hard"), naive_bootstrapping_hard),
    "gce": (GeneralisedCrossEntropy(q=0.7), naive_gce),
    "sce": (SymmetricCrossEntropy(alpha=0.1, beta=2.0, log_zero=-4.0), naive_sce),
}


def assert_same(ours, naive, variables):
    torch.testing.assert_close(ours, naive, rtol=0, atol=1e-9)
    gradients = [torch.autograd.grad(loss, variables, retain_graph=True) for loss in (ours, naive)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_a_criterion_is_its_naive_loop(case, name):
    logits, y = case
    ours, naive = LOSSES[name]
    expected = sum(naive(row, t) for row, t in zip(logits, y.tolist(), strict=True)) / 9
    assert_same(ours.criterion(logits, y), expected, logits)


def test_limits_of_criteria_are_cross_entropy(case):
    logits, y = case
    xent = F.cross_entropy(logits, y)
    nearly = GeneralisedCrossEntropy(q=1e-8)
    torch.testing.assert_close(nearly.criterion(logits, y), xent, rtol=1e-6, atol=0)
    for method in (
        SymmetricCrossEntropy(alpha=1.0, beta=0.0, log_zero=-4.0),
        Bootstrapping(beta=1.0, kind="soft"),
        SoftMargin(margin=1e-15),
    ):
        torch.testing.assert_close(method.criterion(logits, y), xent)


def test_the_weight_of_the_output_margin_is_a_factor(case):
    for over in ("nearest", "all"):
        one, three = (OutputMargin(weight=weight, over=over).criterion(*case) for weight in (1.0, 3.0))
        torch.testing.assert_close(three, 3 * one)


def test_saturated_logits_give_finite_losses_and_gradients():
    logits = torch.tensor([[300.0, 0, 0, 0], [-300.0, 0, 0, 0]], requires_grad=True)
    y = torch.zeros(2, dtype=torch.long)
    for ours, _ in LOSSES.values():
        (gradient,) = torch.autograd.grad(ours.criterion(logits, y), logits)
        assert gradient.isfinite().all()


def naive_psi(theta, m):
    k = next(k for k in range(m) if k * math.pi / m <= theta <= (k + 1) * math.pi / m)
    return (-1) ** k * (m * theta).cos() - 2 * k


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_large_margin_softmax_is_its_formula_with_angles(m):
    torch.manual_seed(1)
    features = torch.randn(30, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(CLASSES, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(CLASSES, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (30,))
    logits = features @ weight.t() + bias
    rows = []
    for x, t, row in zip(features, y.tolist(), logits, strict=True):
        size = weight[t].norm() * x.norm()
        theta = (weight[t] @ x / size).acos()
        true = size * (5 * theta.cos() + naive_psi(theta, m)) / 6 + bias[t]
        rows.append(torch.stack([true if k == t else row[k] for k in range(CLASSES)]))
    changed = large_margin_logits(logits, y, features, weight, m, 5.0)
    assert_same(F.cross_entropy(changed, y), F.cross_entropy(torch.stack(rows), y), (features, weight))


def test_the_angular_margin_falls_all_the_way():
    theta = torch.linspace(0, math.pi, 1001, dtype=torch.float64)
    psi = angular_margin(theta.cos(), 3)
    assert (psi.diff() < 1e-12).all()
    assert (psi <= theta.cos() + 1e-12).all()
    torch.testing.assert_close(psi[[0, -1]], torch.tensor([1.0, -5.0], dtype=torch.float64))


def test_liu_adds_what_the_margin_costs_over_cross_entropy():
    torch.manual_seed(2)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, CLASSES))
    x, y = torch.rand(6, 1, 2, 2), torch.randint(0, CLASSES, (6,))
    features = network[:3](x)
    logits = network[3](features)
    step = Step(network, x, y, logits, again=network, features=features)
    assert Liu(m=1, easing=0.0).term(step).item() == pytest.approx(0, abs=1e-6)
    assert Liu(m=2, easing=0.0).term(step) > Liu(m=2, easing=5.0).term(step) > 0
