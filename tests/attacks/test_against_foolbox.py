"""FGSM, IFGSM and PGD against foolbox's, on the same network, images and parameters."""

import copy

import foolbox
import pytest
import torch
from foolbox import attacks as fa

from lmsweep.attacks import fgsm, ifgsm, pgd
from lmsweep.seeds import derive_seed

EPSILONS = (0.03, 0.1, 0.3)


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["float32", "float64"])
def setting(request, net, test_set):
    x, y = test_set
    model = copy.deepcopy(net).to(request.param)
    x = x[:60].to(request.param)
    return model, foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu"), x, y[:60]


def criterion(y, targeted):
    return (
        foolbox.criteria.TargetedMisclassification(y) if targeted else foolbox.criteria.Misclassification(y)
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("targeted", [False, True])
def test_fgsm(setting, epsilon, targeted):
    model, reference, x, y = setting
    labels = (y + 3) % 10 if targeted else y
    # foolbox's FGSM refuses targets; one step of its iterated attack is the same thing.
    attack = fa.LinfBasicIterativeAttack(abs_stepsize=epsilon, steps=1, random_start=False)
    theirs = attack.run(reference, x, criterion(labels, targeted), epsilon=epsilon)
    ours = fgsm(model, x, labels, epsilon=epsilon, targeted=targeted)
    assert (ours - theirs).abs().max() < 1e-6
    if not targeted:
        single = fa.LinfFastGradientAttack(random_start=False).run(reference, x, y, epsilon=epsilon)
        assert (ours - single).abs().max() < 1e-6
    assert (ours - x).abs().max() > 0.9 * epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("steps", [None, 40])
def test_ifgsm(setting, epsilon, targeted, steps):
    model, reference, x, y = setting
    labels = (y + 3) % 10 if targeted else y
    count = {0.03: 3, 0.1: 10, 0.3: 30}[epsilon] if steps is None else steps
    attack = fa.LinfBasicIterativeAttack(abs_stepsize=0.01, steps=count, random_start=False)
    theirs = attack.run(reference, x, criterion(labels, targeted), epsilon=epsilon)
    ours = ifgsm(model, x, labels, epsilon=epsilon, alpha=0.01, steps=steps, targeted=targeted)
    assert (ours - theirs).abs().max() < 1e-6


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("targeted", [False, True])
def test_pgd_from_the_same_random_start(net, test_set, epsilon, targeted):
    # In float32, because foolbox draws its starts in no other type.
    x, y = test_set[0][:60], test_set[1][:60]
    model, reference = net, foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    labels = (y + 3) % 10 if targeted else y
    attack = fa.LinfProjectedGradientDescentAttack(abs_stepsize=0.02, steps=20, random_start=True)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(7, "pgd/0"))
        theirs = attack.run(reference, x, criterion(labels, targeted), epsilon=epsilon)
    ours = pgd(model, x, labels, epsilon=epsilon, alpha=0.02, steps=20, seed=7, targeted=targeted)
    assert (ours - theirs).abs().max() < 1e-6


def test_pgd_without_random_start(setting):
    model, reference, x, y = setting
    attack = fa.LinfProjectedGradientDescentAttack(rel_stepsize=2.5 / 25, steps=25, random_start=False)
    theirs = attack.run(reference, x, y, epsilon=0.1)
    ours = pgd(model, x, y, epsilon=0.1, steps=25, random_start=False)
    assert (ours - theirs).abs().max() < 1e-6
