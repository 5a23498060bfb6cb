"""The worst case over attacks, against each of its members and against AutoAttack."""

import time

import pytest
import torch

from lmsweep.attacks import Ensemble, attack_curve, pgd
from lmsweep.margin import margin_loss
from tests.attacks.conftest import Scaled, make_net

FEW = {"apgd_steps": 10, "targets": 2, "minimal_steps": 10, "queries": 20}


@pytest.mark.parametrize(("norm", "epsilons"), [("linf", (0.1, 0.05, 0.0)), ("l2", (0.6, 0.3, 0.0))])
def test_it_fools_whatever_one_of_its_members_fools(net, test_set, norm, epsilons):
    data = [(test_set[0][:60], test_set[1][:60])]
    ensemble = Ensemble(epsilons=epsilons, norm=norm, **FEW)
    curve = attack_curve(net, data, ensemble)
    members = {name: attack_curve(net, data, member) for name, member in ensemble.members().items()}
    assert len(members) == (5 if norm == "linf" else 4)
    worst = torch.stack([member.correct for member in members.values()]).all(0)
    assert (curve.correct != worst).float().mean() <= 0.01  # rounding at the boundary
    assert torch.equal(curve.correct[2], curve.clean_correct)
    assert curve.accuracy[0] <= curve.accuracy[1] <= curve.accuracy[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "pgd", "first_order", "exact", "scaled"])
def test_it_leaves_no_more_than_autoattack(digits, test_set, kind):
    """At most half a point more than AutoAttack's standard version, over two epsilons in linf and in l2."""
    pytest.importorskip("pyautoattack")
    from lmsweep.attacks.autoattack import AutoAttack

    model = trained(kind, digits[0][500:], digits[1][500:])
    data, more = [(test_set[0][:100], test_set[1][:100])], []
    for norm, epsilons in (("linf", (0.05, 0.1)), ("l2", (0.4, 0.8))):
        attacks = {
            "ours": Ensemble(epsilons=epsilons, norm=norm, apgd_steps=100, minimal_steps=100, queries=1000),
            "autoattack": AutoAttack(epsilons=epsilons, norm=norm),
        }
        found, seconds = {}, {}
        for name, attack in attacks.items():
            began = time.perf_counter()
            found[name] = attack_curve(model, data, attack).accuracy
            seconds[name] = time.perf_counter() - began
        print(kind, norm, found, {name: f"{value:.0f} s" for name, value in seconds.items()})
        more += [ours - theirs for ours, theirs in zip(found["ours"], found["autoattack"], strict=True)]
    assert sum(more) / len(more) <= 0.005 + 1e-9
    assert max(more) <= 0.01 + 1e-9  # one image


def trained(kind, x, y, steps=300):
    """A small network for the digits; `first_order` has a large gamma, which masks its gradients."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make_net()
    options = {
        "first_order": {"norm": float("inf"), "gamma": 2.0},
        "exact": {"norm": float("inf"), "gamma": 0.1, "exact": True},
    }.get(kind)
    optimizer = torch.optim.Adam(net.parameters(), 0.003)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        rows = torch.randint(0, len(x), (64,), generator=generator)
        images, labels = x[rows], y[rows]
        if kind == "pgd":
            images = pgd(net, images, labels, epsilon=0.1, steps=5, seed=step)
        if options:
            images = images.clone().requires_grad_()
            loss = margin_loss(net(images), labels, [images], **options)
        else:
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Scaled(net.eval(), 1e4) if kind == "scaled" else net.eval()
