"""Auto-PGD and PGD in three norms: against AutoAttack's own, foolbox and what the papers say."""

import foolbox
import pytest
import torch

from lmsweep.attacks import APGD, apgd, attack_curve, pgd
from lmsweep.attacks.apgd import _Ascents, apgd_examples, checkpoints
from lmsweep.attacks.balls import lengths, random_points
from lmsweep.attacks.trajectory import attack_loss, logits_ratio
from lmsweep.margin.temporary import frozen
from tests.attacks.conftest import Counter, Scaled

EPSILONS = {"l1": 2.0, "l2": 0.5, "linf": 0.1}
THEIR_NORMS = {"l1": "L1", "l2": "L2", "linf": "Linf"}


def test_the_checkpoints_are_those_of_the_paper():
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(10)[-1] <= 10


def test_dlr_against_its_formula():
    z = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).double()
    y, t = torch.arange(50) % 6, (torch.arange(50) + 2) % 6
    for i in range(50):
        order = sorted(z[i].tolist(), reverse=True)
        other = max(v for j, v in enumerate(z[i].tolist()) if j != y[i])
        untargeted = -(z[i, y[i]].item() - other) / (order[0] - order[2])
        targeted = -(z[i, y[i]] - z[i, t[i]]).item() / (order[0] - (order[2] + order[3]) / 2)
        assert logits_ratio(z[i : i + 1], y[i : i + 1]).item() == pytest.approx(untargeted)
        assert logits_ratio(z[i : i + 1], y[i : i + 1], t[i : i + 1]).item() == pytest.approx(targeted)
    torch.testing.assert_close(logits_ratio(1e4 * z, y), logits_ratio(z, y))


@pytest.mark.parametrize("norm", EPSILONS)
@pytest.mark.parametrize("loss", ["xent", "dlr"])
def test_one_ascent_is_that_of_autoattack(net, test_set, norm, loss):
    """From the same start both reach the same loss, but for rounding on a few samples."""
    reference = pytest.importorskip("pyautoattack.autopgd_base")
    x, y = test_set[0][:60], test_set[1][:60]
    theirs = reference.APGDAttack(
        net,
        n_iter=50,
        norm=THEIR_NORMS[norm],
        n_restarts=1,
        eps=EPSILONS[norm],
        seed=0,
        loss={"xent": "ce", "dlr": "dlr"}[loss],
        eot_iter=1,
        rho=0.75,
        verbose=False,
        device="cpu",
    )
    theirs.init_hyperparam(x)
    start = random_points(x, EPSILONS[norm], norm, True, torch.Generator().manual_seed(3))
    with torch.random.fork_rng():
        _, _, found, _ = theirs.attack_single_run(x, y, x_init=start)
    ours = ascent(net, x, y, start, norm, loss)
    assert ((ours - found).abs() < 1e-2 * found.abs().clamp_min(1)).float().mean() > 0.85
    assert ours.clamp(-5, 5).mean() == pytest.approx(found.clamp(-5, 5).mean().item(), abs=0.05)


def ascent(net, x, y, start, norm, loss):
    """The best loss of our ascent from `start` alone."""
    ascents = _Ascents(net, x, y, norm, EPSILONS[norm], 50, torch.full((len(x),), -1, dtype=torch.long))
    with frozen(net):
        ends = ascents.climb(lambda logits, rows: attack_loss(logits, y[rows], loss), start)
        return attack_loss(net(ends), y, loss).detach()


def test_pgd_in_l2_is_that_of_foolbox(net, test_set):
    x, y = test_set[0][:60], test_set[1][:60]
    reference = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.L2ProjectedGradientDescentAttack(abs_stepsize=0.1, steps=20, random_start=False)
    theirs = attack.run(reference, x, y, epsilon=0.5)
    ours = pgd(net, x, y, epsilon=0.5, alpha=0.1, steps=20, norm="l2", random_start=False)
    assert (ours - theirs).abs().max() < 1e-4


@pytest.mark.parametrize("norm", EPSILONS)
def test_it_is_at_least_as_strong_as_pgd_and_stays_inside(net, test_set, norm):
    x, y = test_set[0][:100], test_set[1][:100]
    epsilon = EPSILONS[norm]
    for loss in ("xent", "margin", "dlr"):
        found = apgd(net, x, y, epsilon=epsilon, steps=30, norm=norm, loss=loss)
        assert (lengths(found - x, norm) <= epsilon * (1 + 1e-5)).all()
        assert ((found >= 0) & (found <= 1)).all()
        plain = pgd(net, x, y, epsilon=epsilon, steps=30, norm=norm, loss=loss)
        ours, theirs = ((net(points).argmax(1) == y).float().mean() for points in (found, plain))
        assert ours <= theirs + 0.03


def test_a_factor_before_the_logits_changes_nothing_but_for_cross_entropy(net, test_set):
    data = [(test_set[0][:80], test_set[1][:80])]
    accuracies = {
        loss: [
            attack_curve(model, data, APGD(epsilons=(0.1,), steps=20, loss=loss)).accuracy[0]
            for model in (net, Scaled(net, 2.0**14))
        ]
        for loss in ("xent", "margin", "dlr_targeted")
    }
    assert accuracies["margin"][0] == accuracies["margin"][1]
    assert abs(accuracies["dlr_targeted"][0] - accuracies["dlr_targeted"][1]) <= 0.03
    assert accuracies["xent"][1] > accuracies["xent"][0] + 0.2


def test_early_stop_saves_work_and_larger_epsilons_keep_what_smaller_ones_found(net, test_set):
    data = [(test_set[0][:60], test_set[1][:60])]
    counted, alone = Counter(net), Counter(net)
    epsilons = (0.2, 0.05, 0.1)
    curve = attack_curve(counted, data, APGD(epsilons=epsilons, steps=20, loss="margin"))
    assert (curve.correct[0] <= curve.correct[2]).all()
    assert (curve.correct[2] <= curve.correct[1]).all()
    for epsilon in epsilons:
        attack_curve(alone, data, APGD(epsilons=(epsilon,), steps=20, loss="margin"))
    assert counted.gradients < alone.gradients < 3 * 60 * 21
    without = attack_curve(net, data, APGD(epsilons=(0.1,), steps=20, loss="margin"), early_stop=False)
    assert abs(without.accuracy[0] - curve.accuracy[2]) <= 0.04


def test_a_sample_meets_the_same_attack_whoever_else_is_settled(net, test_set):
    x, y = test_set[0][:20], test_set[1][:20]
    options = {"epsilon": 0.05, "steps": 10, "loss": "margin", "early_stop": True}
    with frozen(net):
        everyone = apgd_examples(net, x, y, settled=torch.full((20,), -1), **options)
        half = apgd_examples(net, x, y, settled=torch.where(torch.arange(20) < 10, 3, -1), **options)
    torch.testing.assert_close(half.x[10:], everyone.x[10:], atol=1e-3, rtol=0)
    assert torch.equal(half.x[:10], x[:10])


def test_the_history_is_the_best_loss_so_far(net, test_set):
    history = []
    with frozen(net):
        apgd_examples(net, *(part[:30] for part in test_set), epsilon=0.05, steps=12, history=history)
    losses = torch.stack(history)
    assert losses.shape == (12, 30)
    assert (losses.diff(dim=0) >= 0).all()
