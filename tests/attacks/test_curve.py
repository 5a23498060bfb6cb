"""One pass over epsilons gives what one attack per epsilon gives, for less."""

import pytest
import torch

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
    transfer_curves,
    transfer_matrix,
)
from lmsweep.attacks.attack import Clean
from lmsweep.attacks.ifgsm import iterations
from lmsweep.attacks.trajectory import Stop, trajectory
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed
from tests.attacks.conftest import Counter, Scaled

EPSILONS = (0.0, 0.05, 0.08, 0.095, 0.1, 0.2)
EVERY = {
    "fgsm": FGSM(epsilons=EPSILONS),
    "ifgsm": IFGSM(epsilons=EPSILONS, alpha=0.03),
    "ifgsm steps": IFGSM(epsilons=EPSILONS, alpha=0.03, steps=9),
    "ifgsm targeted": IFGSM(epsilons=EPSILONS, alpha=0.03, target="least_likely"),
    "pgd": PGD(epsilons=EPSILONS, steps=5, restarts=2),
    "search": RandomSearch(epsilons=EPSILONS, queries=20),
    "gaussian": GaussianNoise(stddevs=(0.0, 0.1, 0.4)),
}


def batches(test_set, size=70):
    return list(zip(test_set[0].split(size), test_set[1].split(size), strict=True))


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


@pytest.mark.parametrize(
    ("epsilon", "alpha", "steps"),
    [(0.3, 0.1, 3), (0.3, 0.01, 30), (0.1, 0.03, 4), (0.0, 0.1, 0), (0.05, 1, 1)],
)
def test_the_number_of_steps_is_the_least_that_reaches_epsilon(epsilon, alpha, steps):
    assert iterations(epsilon, alpha) == steps


def test_fewer_steps_than_reach_epsilon_are_refused(net, test_set):
    with pytest.raises(ValueError, match="at least epsilon / alpha = 30"):
        ifgsm(net, *test_set, epsilon=0.3, alpha=0.01, steps=29)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("early_stop", [True, False])
def test_strength_zero_is_clean_accuracy(net, test_set, name, early_stop):
    curve = attack_curve(net, batches(test_set), EVERY[name], early_stop=early_stop)
    assert curve.accuracy[0] == accuracy(net, *test_set)
    assert curve.to_dict()["clean_accuracy"] == accuracy(net, *test_set)
    assert curve.correct.shape == (len(EVERY[name].strengths), 200)


@pytest.mark.parametrize("loss", ["xent", "margin"])
def test_the_shared_path_is_bitwise_the_separate_attacks(net, test_set, loss):
    x, y = test_set
    curve = attack_curve(net, [(x, y)], IFGSM(epsilons=EPSILONS, alpha=0.03, loss=loss), early_stop=False)
    for epsilon, row in zip(EPSILONS, curve.correct, strict=True):
        alone = ifgsm(net, x, y, epsilon=epsilon, alpha=0.03, loss=loss)
        with torch.no_grad():
            assert torch.equal(net(alone).argmax(1) == y, row)
    fast = attack_curve(net, [(x, y)], FGSM(epsilons=EPSILONS, loss=loss), early_stop=False)
    for epsilon, row in zip(EPSILONS, fast.correct, strict=True):
        with torch.no_grad():
            assert torch.equal(net(fgsm(net, x, y, epsilon=epsilon, loss=loss)).argmax(1) == y, row)


def test_epsilons_may_come_in_any_order(net, test_set):
    shuffled = (0.2, 0.0, 0.1, 0.095)
    curve = attack_curve(net, batches(test_set), IFGSM(epsilons=shuffled, alpha=0.03))
    straight = attack_curve(net, batches(test_set), IFGSM(epsilons=tuple(sorted(shuffled)), alpha=0.03))
    assert dict(zip(shuffled, curve.accuracy, strict=True)) == dict(
        zip(sorted(shuffled), straight.accuracy, strict=True)
    )


def test_early_stop_means_fooled_anywhere_on_the_way(net, test_set):
    x, y = test_set
    epsilons = (0.04, 0.1)
    curve = attack_curve(net, batches(test_set), IFGSM(epsilons=epsilons, alpha=0.02))
    for epsilon, row in zip(epsilons, curve.correct, strict=True):
        survived = torch.ones(len(y), dtype=torch.bool)
        for step in range(iterations(epsilon, 0.02) + 1):
            point = ifgsm(net, x, y, epsilon=step * 0.02, alpha=0.02)
            with torch.no_grad():
                survived &= net(point).argmax(1) == y
        # Networks see other batch sizes on the way, which may turn the last bit of a tie.
        assert (survived != row).sum() <= 1


@pytest.mark.parametrize("name", ["fgsm", "ifgsm", "ifgsm steps", "pgd"])
def test_early_stop_saves_work_and_never_helps_the_network(net, test_set, name):
    eager, patient = Counter(net), Counter(net)
    early = attack_curve(eager, batches(test_set), EVERY[name])
    late = attack_curve(patient, batches(test_set), EVERY[name], early_stop=False)
    assert all(a <= b + 1e-9 for a, b in zip(early.accuracy, late.accuracy, strict=True))
    assert eager.gradients < patient.gradients


def test_a_longer_way_of_the_same_steps_never_helps_the_network(net, test_set):
    curve = attack_curve(net, batches(test_set), IFGSM(epsilons=(0.0, 0.05, 0.1, 0.15, 0.2, 0.4), alpha=0.05))
    assert (curve.correct[1:] <= curve.correct[:-1]).all()


def test_a_curve_costs_one_path_for_all_epsilons(net, test_set):
    counted = Counter(net)
    attack_curve(counted, batches(test_set), IFGSM(epsilons=(0.1, 0.2, 0.3), alpha=0.01), early_stop=False)
    assert counted.gradients == 30 * 200  # not 10 + 20 + 30
    assert counted.forwards == (30 + 1 + 3) * 200  # the clean one, and one per epsilon
    counted = Counter(net)
    attack_curve(counted, batches(test_set), FGSM(epsilons=(0.1, 0.2, 0.3)), early_stop=False)
    assert counted.gradients == 200


def test_pgd_counts_the_worst_of_its_restarts(net, test_set):
    x, y = test_set
    seed = derive_seed(3, "batch/0")
    curve = attack_curve(net, [(x, y)], PGD(epsilons=(0.1,), steps=4, restarts=3), seed=3, early_stop=False)
    found = pgd(net, x, y, epsilon=0.1, steps=4, restarts=3, seed=seed)
    assert accuracy(net, found, y) == curve.accuracy[0]
    single = accuracy(net, pgd(net, x, y, epsilon=0.1, steps=4, seed=seed), y)
    assert curve.accuracy[0] < single


def test_targeted_attacks_reach_their_class(net, test_set):
    x, y = test_set
    target = (y + 1) % 10
    found = ifgsm(net, x, target, epsilon=0.6, alpha=0.02, targeted=True)
    assert accuracy(net, found, target) > 0.95
    curve = attack_curve(net, batches(test_set), EVERY["ifgsm targeted"])
    assert curve.accuracy[-1] < curve.accuracy[0] - 0.1


def test_zero_gradients_are_reported(net, test_set):
    plain = attack_curve(net, batches(test_set), IFGSM(epsilons=(0.1,), alpha=0.05))
    saturated = attack_curve(
        Scaled(net, 1e4), batches(test_set), IFGSM(epsilons=(0.1,), alpha=0.05), early_stop=False
    )
    assert plain.zero_gradients == (0.0,)
    assert saturated.zero_gradients[0] > 0.9
    assert saturated.accuracy[0] == accuracy(net, *test_set)  # the fake robustness this is about
    assert attack_curve(net, batches(test_set), GaussianNoise(stddevs=(0.1,))).zero_gradients == (None,)


def test_a_transfer_matrix_has_white_box_on_its_diagonal(nets, test_set):
    models = {f"net{i}": net for i, net in enumerate(nets)}
    attack = IFGSM(epsilons=(0.0, 0.1, 0.2), alpha=0.02)
    matrix = transfer_matrix(models, batches(test_set), attack)
    x, y = test_set
    for source, row in matrix.items():
        white = attack_curve(models[source], batches(test_set), attack, early_stop=False)
        assert torch.equal(row[source].correct, white.correct)
        for target, curve in row.items():
            assert curve.accuracy[0] == accuracy(models[target], x, y)
            made = ifgsm(models[source], x, y, epsilon=0.2, alpha=0.02)
            # Made in batches here and at once there: a sign of a gradient of 1e-9 may differ.
            assert curve.accuracy[2] == pytest.approx(accuracy(models[target], made, y), abs=0.011)
            if target != source:
                assert curve.accuracy[2] > row[source].accuracy[2] + 0.1


def test_transfer_goes_on_after_the_source_is_fooled(nets, test_set):
    source, target = nets[0], nets[1]
    curves = transfer_curves(
        source, {"target": target}, batches(test_set), IFGSM(epsilons=(0.05, 0.3), alpha=0.01)
    )
    # Examples that stop where the source falls (0.1 at most, for most samples) would be far weaker.
    assert curves["target"].accuracy[1] < curves["target"].accuracy[0] - 0.3


def test_gaussian_noise_is_seeded_scaled_and_clipped(net, test_set):
    x, y = test_set
    one = gaussian_noise(x, stddev=0.3, seed=1, clip_pixels=False)
    assert torch.equal(one, gaussian_noise(x, stddev=0.3, seed=1, clip_pixels=False))
    assert not torch.equal(one, gaussian_noise(x, stddev=0.3, seed=2, clip_pixels=False))
    assert float((one - x).std()) == pytest.approx(0.3, rel=0.02)
    assert torch.equal(gaussian_noise(x, stddev=0.3, seed=1), one.clamp(0, 1))
    curve = attack_curve(net, [(x, y)], GaussianNoise(stddevs=(0.0, 0.3, 2.0)), seed=4)
    noisy = gaussian_noise(x, stddev=0.3, seed=derive_seed(4, "batch/0"))
    assert curve.accuracy[1] == accuracy(net, noisy, y)
    assert curve.accuracy[0] > curve.accuracy[1] > curve.accuracy[2]


@pytest.mark.parametrize("target", ["none", "least_likely"])
@pytest.mark.parametrize("early_stop", [True, False])
def test_epsilons_that_share_their_first_steps_end_where_each_ends_alone(net, test_set, target, early_stop):
    x, y = test_set[0][:60], test_set[1][:60]
    counted = Counter(net)
    with torch.no_grad():
        clean = Clean(x, y, net(x))

    def found(*epsilons):
        attack = IFGSM(epsilons=epsilons, alpha=0.03, steps=9, target=target)
        with frozen(counted):
            return list(attack.examples(counted, clean, seed=0, early_stop=early_stop))

    together = found(*EPSILONS)
    shared, counted.gradients = counted.gradients, 0
    for epsilon, ours in zip(EPSILONS, together, strict=True):
        (alone,) = found(epsilon)
        (path,) = trajectory_of(net, clean, epsilon, target, early_stop)
        for other in (alone, path):
            assert torch.equal(ours.x, other.x)
            assert torch.equal(ours.settled, other.settled)
            assert (ours.gradients, int(ours.zero_gradients)) == (other.gradients, int(other.zero_gradients))
    assert shared < counted.gradients


def trajectory_of(net, clean, epsilon, target, early_stop):
    """The path of one epsilon in one piece."""
    labels, targeted = clean.aim(target)
    stop = Stop(epsilon, 9 if epsilon else 0)
    options = {"alpha": 0.03, "loss": "xent", "targeted": targeted, "clip_pixels": True}
    settled = clean.settled(labels, targeted, early_stop)
    with frozen(net):
        return list(
            trajectory(net, clean.x, labels, [stop], settled=settled, early_stop=early_stop, **options)
        )


def test_what_is_remembered_is_not_computed_again(nets, test_set):
    kept, attack = {}, EVERY["pgd"]

    def remember(name, find):
        return kept[name] if name in kept else kept.setdefault(name, find())

    before = transfer_curves(nets[0], {"b": nets[1]}, batches(test_set), attack, remember=remember)["b"]
    del kept["batch/1"]
    counter = Counter(nets[1])
    after = transfer_curves(nets[0], {"b": counter}, batches(test_set), attack, remember=remember)["b"]
    assert counter.forwards == 70 * (1 + len(EPSILONS))  # one batch, clean and attacked
    assert torch.equal(before.correct, after.correct)
    assert torch.equal(before.clean_correct, after.clean_correct)
    assert before.zero_gradients == after.zero_gradients
