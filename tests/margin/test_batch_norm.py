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
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, **options),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 16, 6),
        nn.BatchNorm1d(6, **options),
        nn.ReLU(),
        nn.Linear(6, 3),
    ).double()


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


def test_exact_mode_differentiates_through_it():
    net, (x, y) = network(), batch()
    with per_sample_batch_norm(net):
        x.requires_grad_()
        loss = margin_loss(net(x), y, [x], exact=True, gamma=3.0)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    assert all(torch.isfinite(g).all() for g in gradients)
    # The scale of a batch norm changes the slope, so the exact gradient must see it.
    assert gradients[2].abs().sum() > 0


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
