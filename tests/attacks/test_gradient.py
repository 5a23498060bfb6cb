"""The attack's losses against loops, and where cross-entropy has no gradient left."""

import copy
import math

import pytest
import torch

from lmsweep.attacks.trajectory import attack_loss, input_gradient, is_zero
from lmsweep.margin.temporary import frozen
from tests.attacks.conftest import Scaled


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_losses_are_what_their_formulas_say(dtype):
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = torch.arange(20) % 5
    xent, margin = attack_loss(logits, y, "xent"), attack_loss(logits, y, "margin")
    for i, row in enumerate(logits.double().tolist()):
        others = [v for j, v in enumerate(row) if j != y[i]]
        assert float(margin[i]) == pytest.approx(max(others) - row[y[i]], abs=1e-6)
        assert float(xent[i]) == pytest.approx(math.log(sum(map(math.exp, row))) - row[y[i]], abs=1e-5)


def test_log_odds_grow_with_cross_entropy_and_lose_nothing_to_rounding(net, test_set):
    x, y = test_set
    exact, visible = copy.deepcopy(net).double(), x.double()
    logits = exact(visible)
    odds, xent = attack_loss(logits, y, "log_odds"), attack_loss(logits, y, "xent")
    torch.testing.assert_close(odds, xent.expm1().log(), rtol=1e-6, atol=1e-6)
    # By the chain rule the gradient is that of cross-entropy times something positive.
    with frozen(exact):
        wanted = input_gradient(exact, visible, y, "xent").gradient
        found = input_gradient(exact, visible, y, "log_odds").gradient
    factor = xent.exp() / xent.expm1()
    torch.testing.assert_close(found, wanted * factor.view(-1, 1, 1, 1), rtol=1e-6, atol=1e-9)
    # Where float32 sees none of cross-entropy's gradient, as many samples as ever have this one.
    saturated = Scaled(net, 2.0**14)
    with frozen(saturated):
        assert not is_zero(input_gradient(saturated, x, y, "log_odds").gradient).any()


def test_an_unknown_loss_is_refused():
    with pytest.raises(ValueError, match="xent, log_odds, margin"):
        attack_loss(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), "hinge")


def test_saturated_logits_have_no_cross_entropy_gradient_but_a_margin_gradient(net, test_set):
    x, y = test_set
    saturated = Scaled(net, 2.0**14)  # a power of two changes no digit, on whatever CPU
    right = net(x).argmax(1) == y
    with frozen(saturated):
        xent = is_zero(input_gradient(saturated, x, y, "xent").gradient)
        margin = input_gradient(saturated, x, y, "margin").gradient
    assert xent[right].float().mean() > 0.95
    assert not is_zero(margin).any()
    with frozen(net):
        plain = input_gradient(net, x, y, "margin").gradient
    assert torch.equal(margin, 2.0**14 * plain)


def test_a_network_without_any_gradient_counts_as_zero(test_set):
    x, y = test_set

    class Rounded(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.one_hot(x.flatten(1).argmax(1) % 10, 10).float()

    model = Rounded()
    assert is_zero(input_gradient(model, x, y, "xent").gradient).all()
