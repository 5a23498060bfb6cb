"""TRADES and MMA against naive loops, closed forms of linear networks, and what robust training must do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmsweep.attacks import IFGSM, attack_curve
from lmsweep.attacks.trajectory import soft_logit_margin
from lmsweep.data import EvaluationBatches
from lmsweep.margin.temporary import frozen
from lmsweep.methods import Step
from lmsweep.methods.adversarial import MMA, InABall, Trades, divergence, nearest_on_the_line
from lmsweep.seeds import Share
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

BALL = {"epsilon": 0.1, "alpha": 0.03, "steps": 10}


def step_of(share=None, batch=8, scale=1.0):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 3)).double()
    with torch.no_grad():
        net[1].weight.mul_(scale)
    x, y = torch.rand(batch, 1, 3, 3, dtype=torch.float64), torch.randint(0, 3, (batch,))
    x, y = (share.of(x), share.of(y)) if share else (x, y)
    return net, Step(net, x, y, net(x), again=net, seed=5, share=share or Share())


def test_divergence_and_soft_margin_are_their_naive_loops():
    _, step = step_of()
    others = torch.randn(8, 3, dtype=torch.float64)
    p, q = step.logits.softmax(1), others.softmax(1)
    expected = torch.stack(
        [sum(a * (a / b).log() for a, b in zip(*rows, strict=True)) for rows in zip(p, q, strict=True)]
    )
    torch.testing.assert_close(divergence(step.logits, others), expected, rtol=0, atol=1e-9)
    margins = [
        torch.stack([z.exp() for k, z in enumerate(row) if k != t]).sum().log() - row[t]
        for row, t in zip(step.logits, step.y.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        soft_logit_margin(step.logits, step.y), torch.stack(margins), rtol=0, atol=1e-9
    )


def test_climbing_stays_in_the_ball_and_finds_the_worst_corner_of_a_linear_function():
    x, w = torch.full((2, 1, 3, 3), 0.5), torch.randn(9, generator=torch.Generator().manual_seed(1))
    ball = InABall(**BALL)
    found = ball.climbed(lambda image: image.flatten(1) @ w, x, x)
    torch.testing.assert_close(found, x + 0.1 * w.sign().view(1, 1, 3, 3))
    at_the_edge = ball.climbed(lambda image: image.flatten(1) @ w, x * 0 + 0.95, x * 0 + 0.95)
    assert at_the_edge.max() <= 1


def test_trades_is_the_divergence_at_a_bad_image_and_differentiates_both_answers():
    net, step = step_of()
    term = Trades(beta=6.0, **BALL).term(step)
    random = step.x + 0.1 * torch.rand_like(step.x).sub(0.5).sign()
    assert term > 6 * divergence(step.logits, net(random)).mean() > 0
    moved = []
    seen = Step(net, step.x, step.y, step.logits, again=lambda x: moved.append(x) or net(x), seed=5)
    Trades(beta=6.0, **BALL).term(seen)
    p, q = (logits.softmax(1) for logits in (net(step.x), net(moved[0])))
    naive = 6 * (p * (p / q).log()).sum() / 8
    torch.testing.assert_close(term, naive, rtol=0, atol=1e-9)
    ours, theirs = (torch.autograd.grad(value, list(net.parameters())) for value in (term, naive))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_the_nearest_image_of_a_linear_network_is_on_its_boundary():
    """With two classes the l_inf distance of a linear network is |difference of logits| / |w - w'|_1."""
    torch.manual_seed(2)
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 2)).double()
    x = torch.full((1, 1, 3, 3), 0.5, dtype=torch.float64) + 0.05 * torch.randn(5, 1, 3, 3).double()
    y = net(x).argmax(1)
    w = net[1].weight[0] - net[1].weight[1]
    distance = (net(x)[:, 0] - net(x)[:, 1]).abs() / w.abs().sum()
    with frozen(net):
        ball = InABall(epsilon=0.4, alpha=0.1, steps=8)
        far = ball.climbed(lambda image: soft_logit_margin(net(image), y), x, x)
        found = nearest_on_the_line(net, x, far, y)
    near = distance < 0.3
    assert near.any()
    size = (found - x).abs().flatten(1).amax(1)
    torch.testing.assert_close(size[near], distance[near], rtol=0, atol=0.4 / 2**9)
    assert (net(found).argmax(1) != y)[near].all()


def test_mma_counts_samples_by_where_they_stand():
    net, step = step_of(scale=3.0, batch=40)
    moved = []
    seen = Step(net, step.x, step.y, step.logits, again=lambda x: moved.append(x) or net(x), seed=5)
    term = MMA(weight=0.5, **BALL).term(seen)
    total, kinds = 0.0, set()
    for x, near, y in zip(step.x, moved[0], step.y, strict=True):
        right, changed = bool(net(x[None]).argmax() == y), bool((x != near).any())
        kinds.add((right, changed))
        if not right or changed:
            total = total + F.cross_entropy(net(near[None]), y[None])
    assert kinds == {(True, True), (True, False), (False, False)}
    torch.testing.assert_close(term, 0.5 * total / 40, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", [Trades(beta=6.0, **BALL), MMA(weight=1.0, **BALL)])
def test_two_processes_train_on_what_one_trains_on(method):
    whole = method.term(step_of()[1])
    parts = [method.term(step_of(Share(rank, 2))[1]) for rank in range(2)]
    torch.testing.assert_close(sum(parts) / 2, whole)


def robust_accuracy(tmp_path, method):
    folder = tmp_path / method
    folder.mkdir()
    job = prepare_run(config("scale=mnist/smoke", f"method={method}", "trainer.max_steps=300"))
    run(job, "id", folder)
    test = job.data.test.select(torch.arange(200))
    curve = attack_curve(
        job.module.network.eval(), EvaluationBatches(test, 200), IFGSM(epsilons=[0.0, 0.1], alpha=0.01)
    )
    return curve.accuracy


@pytest.mark.slow
def test_robust_trainings_are_more_robust_than_cross_entropy(tmp_path):
    plain = robust_accuracy(tmp_path, "xent")
    for method in ("trades", "mma", "pgd"):
        clean, attacked = robust_accuracy(tmp_path, method)
        assert clean > 0.85
        assert attacked > plain[1] + 0.05, method
