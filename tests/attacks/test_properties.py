"""What holds for every network, shape and epsilon: the ball, the pixel range, and nothing else touched."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lmsweep.attacks import (
    FGSM,
    IFGSM,
    PGD,
    GaussianNoise,
    RandomSearch,
    attack_curve,
    fgsm,
    gaussian_noise,
    ifgsm,
    pgd,
    random_search,
    transfer_curves,
)
from lmsweep.attacks.minimal import class_distances, minimal_examples

ATTACKS = {
    "fgsm": fgsm,
    "ifgsm": lambda *a, **k: ifgsm(*a, **k, alpha=0.07),
    "ifgsm many steps": lambda *a, **k: ifgsm(*a, **k, alpha=0.3, steps=7),
    "pgd": lambda *a, **k: pgd(*a, **k, steps=3, restarts=2, seed=5),
    "search": lambda *a, **k: random_search(*a, **{n: v for n, v in k.items() if n != "loss"}, queries=6),
}


@given(
    name=st.sampled_from(sorted(ATTACKS)),
    shape=st.one_of(
        st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)), st.tuples(st.integers(1, 30))
    ),
    epsilon=st.one_of(st.just(0.0), st.floats(1e-4, 1.5)),
    loss=st.sampled_from(["xent", "margin"]),
    targeted=st.booleans(),
    clip_pixels=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=120)
def test_examples_stay_in_the_ball_and_in_the_pixel_range(
    name, shape, epsilon, loss, targeted, clip_pixels, seed
):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(4, *shape, generator=generator)
    x[0] = (x[0] > 0.5).float()  # at the ends of the range, where clipping matters
    y = torch.randint(0, 3, (4,), generator=generator)
    linear = nn.Linear(x[0].numel(), 3)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(linear.weight.shape, generator=generator))
    model = nn.Sequential(nn.Flatten(), linear)
    found = ATTACKS[name](model, x, y, epsilon=epsilon, loss=loss, targeted=targeted, clip_pixels=clip_pixels)
    assert found.shape == x.shape
    assert (found - x).abs().max() <= epsilon + 1e-6
    if clip_pixels:
        assert found.min() >= 0
        assert found.max() <= 1
    if epsilon == 0:
        assert torch.equal(found, x)


def busy_model() -> nn.Module:
    """A network in training, with everything an attack could disturb; one part is in evaluation mode."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    model.train()
    model[4].eval()
    model[0].bias.requires_grad_(False)
    model(torch.rand(8, 1, 8, 8)).sum().backward()
    return model


MEASUREMENTS = {
    "fgsm": lambda m, x, y: fgsm(m, x, y, epsilon=0.1),
    "ifgsm": lambda m, x, y: ifgsm(m, x, y, epsilon=0.1, alpha=0.05),
    "pgd": lambda m, x, y: pgd(m, x, y, epsilon=0.1, steps=3, restarts=2),
    "search": lambda m, x, y: random_search(m, x, y, epsilon=0.1, queries=5),
    "noise": lambda m, x, y: gaussian_noise(x, stddev=0.1, seed=1),
    "curve fgsm": lambda m, x, y: attack_curve(m, [(x, y)], FGSM(epsilons=(0.1, 0.2))),
    "curve ifgsm": lambda m, x, y: attack_curve(m, [(x, y)], IFGSM(epsilons=(0.1, 0.2), alpha=0.05)),
    "curve pgd": lambda m, x, y: attack_curve(m, [(x, y)], PGD(epsilons=(0.1,), steps=2)),
    "curve search": lambda m, x, y: attack_curve(m, [(x, y)], RandomSearch(epsilons=(0.1,), queries=3)),
    "curve noise": lambda m, x, y: attack_curve(m, [(x, y)], GaussianNoise(stddevs=(0.1,))),
    "transfer": lambda m, x, y: transfer_curves(m, {"a": m}, [(x, y)], FGSM(epsilons=(0.1,))),
    "linearised": lambda m, x, y: class_distances(m, x, y, "l2"),
    "l1": lambda m, x, y: minimal_examples(m, x, y, norm="l1", steps=3),
    "l2": lambda m, x, y: minimal_examples(m, x, y, norm="l2", steps=3),
    "linf": lambda m, x, y: minimal_examples(m, x, y, norm="linf", steps=3),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_attacks_leave_no_trace(name, test_set):
    model = busy_model()
    x, y = test_set[0][:6].clone(), test_set[1][:6].clone()
    before = copy.deepcopy(model)
    state = copy.deepcopy(model.state_dict())
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    rng = torch.get_rng_state()
    MEASUREMENTS[name](model, x, y)
    assert torch.equal(torch.get_rng_state(), rng)
    assert torch.equal(x, test_set[0][:6])
    assert not x.requires_grad
    for key, value in model.state_dict().items():  # running statistics too
        assert torch.equal(value, state[key]), key
    for new, old in zip(model.modules(), before.modules(), strict=True):
        assert new.training == old.training
    for new, old, gradient in zip(model.parameters(), before.parameters(), gradients, strict=True):
        assert new.requires_grad == old.requires_grad
        assert (new.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(new.grad, gradient)


def test_an_attack_that_fails_leaves_the_model_as_it_was(test_set):
    model = busy_model()
    x, y = test_set
    with pytest.raises(RuntimeError):
        fgsm(model, x[:, :, :4], y, epsilon=0.1)
    assert model.training
    assert not model[4].training
    assert model[0].weight.requires_grad


def test_the_network_is_attacked_in_evaluation_mode(test_set):
    model = busy_model()
    x, y = test_set[0][:6], test_set[1][:6]
    trained = fgsm(model, x, y, epsilon=0.1)
    assert torch.equal(trained, fgsm(copy.deepcopy(model).eval(), x, y, epsilon=0.1))
