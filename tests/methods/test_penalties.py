"""Penalties on input derivatives against naive loops in float64, and known expectations."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmsweep.methods import Step
from lmsweep.methods.smoothness import (
    CrossLipschitz,
    InputGradient,
    Jacobian,
    squared_jacobian,
    steepest,
)
from lmsweep.seeds import Share

CLASSES = 4


def step_of(share=None, batch=5):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()
    x, y = torch.rand(batch, 1, 2, 3, dtype=torch.float64), torch.randint(0, CLASSES, (batch,))
    if share:
        x, y = share.of(x), share.of(y)
    x.requires_grad_()
    return net, Step(net, x, y, net(x), again=net, seed=7, share=share or Share())


def gradients_of(net, loss):
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    return torch.cat([gradient.flatten() for gradient in found if gradient is not None])


def class_gradients(net, x):
    """(classes, pixels) of one image, one class at a time."""
    image = x[None].detach().requires_grad_()
    rows = [torch.autograd.grad(net(image)[0, k], image, create_graph=True)[0] for k in range(CLASSES)]
    return torch.stack([row.flatten() for row in rows])


def naive_jacobian(net, x):
    return sum(value**2 for row in class_gradients(net, x) for value in row)


def naive_cross_lipschitz(net, x):
    rows = class_gradients(net, x)
    return sum(((rows[a] - rows[b]) ** 2).sum() for a in range(CLASSES) for b in range(CLASSES)) / CLASSES**2


@pytest.mark.parametrize(
    ("method", "naive", "factor"),
    [(Jacobian, naive_jacobian, 0.15), (CrossLipschitz, naive_cross_lipschitz, 0.3)],
)
def test_an_exact_penalty_is_its_naive_loop(method, naive, factor):
    net, step = step_of()
    ours = method(weight=0.3, projections=None).term(step)
    expected = factor * sum(naive(net, x) for x in step.x) / len(step.x)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradients_of(net, ours), gradients_of(net, expected), rtol=0, atol=1e-9)


def test_projections_on_all_axes_are_the_exact_norm_and_random_ones_have_it_as_their_mean():
    _, step = step_of(batch=3)
    exact = squared_jacobian(step.logits, step.x)
    axes = torch.eye(CLASSES, dtype=torch.float64).expand(3, -1, -1)
    torch.testing.assert_close(squared_jacobian(step.logits, step.x, axes), exact)
    drawn = Jacobian(weight=1.0, projections=300).directions(step).double()
    torch.testing.assert_close(drawn.norm(dim=2), torch.ones(3, 300, dtype=torch.float64))
    torch.testing.assert_close(squared_jacobian(step.logits, step.x, drawn), exact, rtol=0.25, atol=0)


@pytest.mark.parametrize("method", [Jacobian, CrossLipschitz])
def test_two_processes_draw_what_one_draws(method):
    _, whole = step_of(batch=6)
    parts = [method(weight=1.0, projections=2).term(step_of(Share(rank, 2), batch=6)[1]) for rank in range(2)]
    torch.testing.assert_close(sum(parts) / 2, method(weight=1.0, projections=2).term(whole))


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_the_steepest_direction_has_length_one_and_reaches_the_dual_norm(norm):
    gradient = torch.randn(4, 1, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    d = steepest(gradient, norm).flatten(1)
    flat = gradient.flatten(1)
    dual = {1.0: math.inf, math.inf: 1.0}.get(norm) or norm / (norm - 1)
    torch.testing.assert_close(torch.linalg.vector_norm(d, norm, dim=1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close((d * flat).sum(1), torch.linalg.vector_norm(flat, dual, dim=1))
    assert steepest(torch.zeros(1, 2), norm).isfinite().all()


@pytest.mark.parametrize("norm", [1.0, 2.0, "inf"])
def test_the_input_gradient_is_its_naive_loop_and_tends_to_the_dual_norm(norm):
    net, step = step_of()
    ours = InputGradient(weight=0.5, norm=norm, h=0.01).term(step)
    expected, limit = 0.0, 0.0
    for x, y in zip(step.x, step.y, strict=True):
        image = x[None].detach().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(net(image), y[None]), image)
        flat = gradient.flatten()
        if norm == "inf":
            d, length = flat.sign(), flat.abs().sum()
        elif norm == 1.0:
            d, length = torch.zeros_like(flat), flat.abs().max()
            d[flat.abs().argmax()] = flat[flat.abs().argmax()].sign()
        else:
            d, length = flat / flat.norm(), flat.norm()
        there = F.cross_entropy(net(image.detach() + 0.01 * d.view_as(image)), y[None])
        here = F.cross_entropy(net(image.detach()), y[None])
        expected = expected + 0.5 * ((there - here) / 0.01) ** 2 / len(step.x)
        limit += 0.5 * length.item() ** 2 / len(step.x)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradients_of(net, ours), gradients_of(net, expected), rtol=0, atol=1e-9)
    near = InputGradient(weight=0.5, norm=norm, h=1e-6).term(step_of()[1])
    assert near.item() == pytest.approx(limit, rel=1e-4)
