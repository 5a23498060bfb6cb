"""SNR budgets: what is measured afterwards is what was asked for."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmsweep.attacks import FGSM, IFGSM, scale_to_snr, snr
from lmsweep.attacks.attack import Clean
from lmsweep.attacks.trajectory import per_sample
from lmsweep.margin.temporary import frozen


def test_snr_is_the_decibel_formula():
    x, delta = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.05]])
    assert float(snr(x, x + delta)) == pytest.approx(20 * math.log10(5 / 0.05), abs=1e-4)
    assert snr(x, x) == math.inf


@pytest.mark.parametrize("attack", [FGSM, IFGSM], ids=["fgsm", "ifgsm"])
@pytest.mark.parametrize("clip_pixels", [True, False])
def test_examples_have_the_snr_asked_for(net, test_set, attack, clip_pixels):
    x, y = test_set
    asked = (50.0, 33.0, 20.0, 10.0)
    more = {} if attack is FGSM else {"alpha": 0.01}
    budget = attack(snrs=asked, clip_pixels=clip_pixels, **more)
    with frozen(net):
        clean = Clean(x, y, net(x).detach())
        found = list(budget.examples(net, clean, seed=0, early_stop=False))
    for target, examples in zip(asked, found, strict=True):
        assert (snr(x, examples.x) - target).abs().max() < 0.1
        if clip_pixels:
            assert examples.x.min() >= 0
            assert examples.x.max() <= 1
    # The budget is used against the network, not anyhow.
    assert (net(found[-1].x).argmax(1) == y).float().mean() < 0.5


@given(seed=st.integers(0, 10**6), target=st.floats(5, 60), binary=st.booleans(), clip_pixels=st.booleans())
@settings(max_examples=60)
def test_any_direction_is_scaled_to_the_budget_or_to_the_pixel_bounds(seed, target, binary, clip_pixels):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(3, 1, 5, 5, generator=generator)
    x = (x > 0.5).float() if binary else x
    direction = torch.randn(3, 1, 5, 5, generator=generator)
    factor = scale_to_snr(x, direction, target, clip_pixels=clip_pixels)
    moved = x + per_sample(factor, x) * direction
    moved = moved.clamp(0, 1) if clip_pixels else moved
    furthest = torch.where(direction > 0, 1.0, 0.0)
    limit = snr(x, furthest) if clip_pixels else torch.full((3,), -math.inf, dtype=torch.float64)
    wanted = limit.clamp_min(target)
    assert ((snr(x, moved) - wanted).abs() < 0.1).all()


def test_a_direction_of_zero_stays_where_it_is():
    x = torch.rand(2, 1, 3, 3)
    for clip_pixels in (True, False):
        factor = scale_to_snr(x, torch.zeros_like(x), 33.0, clip_pixels=clip_pixels)
        assert torch.equal(factor, torch.zeros(2))


def at_snr(net, x, y, attack):
    with frozen(net):
        return list(attack.examples(net, Clean(x, y, net(x).detach()), seed=0, early_stop=False))


def test_the_steps_of_a_sample_do_not_depend_on_the_rest_of_the_batch(net, test_set):
    x, y = test_set[0][:12].clone(), test_set[1][:12]
    x[0] *= 0.1  # a faint image has a small budget and takes few steps
    attack = IFGSM(
        snrs=(10.0,),
        alpha=0.01,
    )
    (together,) = at_snr(net, x, y, attack)
    alone = [at_snr(net, x[i : i + 1], y[i : i + 1], attack)[0] for i in range(12)]
    assert together.gradients == sum(examples.gradients for examples in alone)
    assert alone[0].gradients < alone[1].gradients
    # Networks round differently in other batch sizes, which may turn the sign of a gradient near zero.
    apart = (torch.cat([examples.x for examples in alone]) - together.x).abs().flatten(1).amax(1)
    assert (apart < 1e-5).sum() >= 11


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_given_steps_are_taken_as_they_are(net, test_set, steps):
    x, y = test_set[0][:20], test_set[1][:20]
    (found,) = at_snr(
        net,
        x,
        y,
        IFGSM(
            snrs=(10.0,),
            alpha=0.001,
            steps=steps,
        ),
    )
    assert found.gradients == steps * 20
    assert (snr(x, found.x) - 10).abs().max() < 0.1
