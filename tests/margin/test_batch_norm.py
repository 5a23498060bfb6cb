"""Per-sample gradients through batch norm: what changes, and what must not."""

import pytest
import torch
from torch import nn

from lmsweep.margin import margin_loss
from lmsweep.margin.batch_norm import per_sample_batch_norm
from lmsweep.margin.distance import linearised_margins

OPTIONS = {"norm": 2, "top_k": None, "epsilon": 1e-6, "exact": False, "score": "logit"}


def network(**options):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, **options),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 16, 6),
        nn.BatchNorm1d(6, **options),
        nn.ReLU(),
        nn.Linear(6, 3),
    ).double()
    for module in net:
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 2.0)  # all ones would hide a forgotten factor
    return net


def batch():
    torch.manual_seed(1)
    return torch.randn(5, 1, 6, 6, dtype=torch.float64), torch.randint(0, 3, (5,))


def norms(net, x, y):
    x = x.clone().requires_grad_()
    return linearised_margins(net(x), y, [x], **OPTIONS).gradient_norm


def with_constant_statistics(net, x):
    """The same function of each sample alone: batch statistics turned into running ones, evaluation mode."""
    clone = network()
    clone.load_state_dict(net.state_dict())
    for module in clone:
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
            mean, var = (
                x.transpose(0, 1).flatten(1).mean(1),
                x.transpose(0, 1).flatten(1).var(1, correction=0),
            )
            module.running_mean, module.running_var = mean.detach(), var.detach()
        x = module(x)
    return clone


def test_sweeps_see_each_sample_alone():
    net, (x, y) = network(), batch()
    clean = norms(with_constant_statistics(net, x), x, y)
    leaking = norms(net, x, y)
    with per_sample_batch_norm(net):
        ours = norms(net, x, y)
    torch.testing.assert_close(ours, clean)
    # A check of the check: without the option the other samples' gradients are in there.
    assert ((leaking - clean).abs() / clean).max() > 0.01


@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}]
)
def test_outputs_gradients_and_running_statistics_are_those_of_batch_norm(options):
    x, y = batch()
    plain, patched = network(**options), network(**options)
    for _ in range(2):  # twice, because a cumulative average changes from step to step
        nn.functional.cross_entropy(plain(x), y).backward()
        with per_sample_batch_norm(patched):
            logits = patched(x)
        nn.functional.cross_entropy(logits, y).backward()
    for (name, a), (_, b) in zip(plain.named_parameters(), patched.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)
    for (name, a), (_, b) in zip(plain.named_buffers(), patched.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_it_is_undone_and_evaluation_mode_is_left_alone():
    net = network()
    with per_sample_batch_norm(net):
        assert "forward" in vars(net[1])
    assert "forward" not in vars(net[1])
    net.eval()
    with per_sample_batch_norm(net):
        assert "forward" not in vars(net[1])


def test_exact_mode_equals_numeric_differentiation():
    """Statistics are constants to class gradients, but not to the weights before them."""
    net, (x, y) = network(), batch()
    net[2] = net[6] = nn.Tanh()
    names = [name for name, _ in net.named_parameters()]

    def loss(*values):
        inputs = x.clone().requires_grad_()
        with per_sample_batch_norm(net):
            logits = torch.func.functional_call(net, dict(zip(names, values, strict=True)), (inputs,))
        return margin_loss(logits, y, [inputs], exact=True, gamma=9.0, aggregation="sum")

    values = [p.detach().clone().requires_grad_() for p in net.parameters()]
    assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-5)


def test_a_single_value_per_channel_is_refused_as_batch_norm_does():
    net = nn.BatchNorm1d(3)
    with per_sample_batch_norm(net), pytest.raises(ValueError, match="more than one value per channel"):
        net(torch.randn(1, 3))
    with per_sample_batch_norm(net), pytest.raises(ValueError, match="2D or 3D"):
        net(torch.randn(2, 3, 4, 4))


def test_what_the_user_had_put_in_place_is_put_back():
    net = nn.Sequential(nn.BatchNorm1d(3))
    own = net[0].forward = lambda x: x
    with per_sample_batch_norm(net):
        assert net[0].forward is not own
    assert net[0].forward is own


def test_batched_sweeps_work_through_it():
    net, (x, y) = network(), batch()
    x.requires_grad_()
    with per_sample_batch_norm(net):
        logits = net(x)
        one, many = (
            linearised_margins(logits, y, [x], batched=batched, **OPTIONS).gradient_norm
            for batched in (False, True)
        )
    torch.testing.assert_close(one, many)


def test_synchronised_batch_norm_is_refused_by_name():
    net = nn.SyncBatchNorm.convert_sync_batchnorm(network())
    with pytest.raises(ValueError, match="SyncBatchNorm 1"), per_sample_batch_norm(net):
        pass
