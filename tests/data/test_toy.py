"""The toy data: in the unit square, balanced, bent, and few points to train on."""

import pytest
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from lmsweep.data import prepare, toy


def test_points_lie_in_the_unit_square_in_two_equal_classes():
    source = toy.load(40, 200, 2000, 0.2)
    data = prepare(source, seed=0)
    assert [len(part) for part in (data.train, data.val, data.test)] == [40, 200, 2000]
    assert data.input_shape == (2,)
    assert data.num_classes == 2
    for split in (source.pool, source.test):
        assert 0 <= split.x.min() <= split.x.max() <= 1
        assert abs(split.y.float().mean().item() - 0.5) < 0.1


@pytest.mark.parametrize("count", [1, 2, 301])
def test_they_are_the_moons_of_scikit_learn(count):
    points, labels = make_moons(count, noise=0.2, random_state=0)
    ours, classes = toy.moons(count, 0.2)
    assert (ours.tolist(), classes.tolist()) == (points.tolist(), labels.tolist())


def test_the_boundary_is_bent():
    source = toy.load(40, 200, 2000, 0.2)
    x, y = source.pool.x.numpy(), source.pool.y.numpy()
    test = source.test.x.numpy(), source.test.y.numpy()
    straight = LogisticRegression(C=1e6).fit(x, y).score(*test)
    bent = KNeighborsClassifier(7).fit(x, y).score(*test)
    assert straight < 0.9
    assert bent > straight + 0.05


def test_it_is_one_fixed_draw_from_which_the_seed_takes_the_training_points():
    one, two = (toy.load(40, 200, 500, 0.2) for _ in range(2))
    assert one.test.x.equal(two.test.x)
    points = [prepare(one, seed=seed).train.x for seed in (0, 1)]
    assert not points[0].equal(points[1])


def test_empty_parts_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        toy.load(0, 10, 10, 0.1)
