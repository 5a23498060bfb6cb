"""RMSProp against torch's for torch's choices, and against TensorFlow's formula for TensorFlow's."""

import pytest
import torch

from lmsweep.training.optimizers import RMSprop


def descend(make_optimizer, steps=30):
    """A few steps on a fixed, badly scaled quadratic in two tensors."""
    torch.manual_seed(0)
    params = [torch.randn(4, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    params = [p.requires_grad_() for p in params]
    scales = [torch.logspace(-3, 2, p.numel(), dtype=torch.float64).view(p.shape) for p in params]
    optimizer = make_optimizer(params)
    for _ in range(steps):
        optimizer.zero_grad()
        sum((s * p**2).sum() for s, p in zip(scales, params, strict=True)).backward()
        optimizer.step()
    return params


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_torchs_choices_it_is_torchs(momentum, weight_decay):
    options = {"lr": 0.01, "alpha": 0.9, "eps": 1e-6, "momentum": momentum, "weight_decay": weight_decay}
    ours = descend(lambda p: RMSprop(p, eps_inside_sqrt=False, initial_accumulator=0.0, **options))
    theirs = descend(lambda p: torch.optim.RMSprop(p, **options))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_tensorflows_choices_it_is_tensorflows_formula(momentum):
    ours = descend(
        lambda p: RMSprop(p, lr=0.01, alpha=0.9, eps=1e-10, momentum=momentum, initial_accumulator=1.0)
    )

    class Formula:
        def __init__(self, params):
            self.params = params
            self.square = [torch.ones_like(p) for p in params]
            self.velocity = [torch.zeros_like(p) for p in params]

        def zero_grad(self):
            for p in self.params:
                p.grad = None

        @torch.no_grad()
        def step(self):
            for i, p in enumerate(self.params):
                self.square[i] = 0.9 * self.square[i] + 0.1 * p.grad**2
                self.velocity[i] = (
                    momentum * self.velocity[i] + 0.01 * p.grad / (self.square[i] + 1e-10).sqrt()
                )
                p -= self.velocity[i]

    for a, b in zip(ours, descend(Formula), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_its_state_survives_saving_and_loading(tmp_path):
    torch.manual_seed(0)
    start = torch.randn(6, dtype=torch.float64)
    target = torch.linspace(1, 2, 6, dtype=torch.float64)

    def step(param, optimizer):
        optimizer.zero_grad()
        ((param - target) ** 2).sum().backward()
        optimizer.step()

    whole = start.clone().requires_grad_()
    optimizer = RMSprop([whole], momentum=0.5)
    for _ in range(3):
        step(whole, optimizer)
    torch.save({"param": whole.detach(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    for _ in range(3):
        step(whole, optimizer)
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = saved["param"].clone().requires_grad_()
    again = RMSprop([resumed], momentum=0.5)
    again.load_state_dict(saved["optimizer"])
    for _ in range(3):
        step(resumed, again)
    assert torch.equal(whole, resumed)


@pytest.mark.parametrize(
    "bad", [{"lr": -1}, {"alpha": 1.0}, {"eps": -1}, {"momentum": 1.0}, {"initial_accumulator": -1}]
)
def test_values_out_of_range_are_named(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        RMSprop([torch.zeros(1, requires_grad=True)], **bad)
