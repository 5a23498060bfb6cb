"""scikit-learn's digits: every image once, sizes as promised."""

import torch
from sklearn.datasets import load_digits

from lmsweep.data import digits, prepare


def test_every_image_is_in_one_split():
    data = prepare(digits.load(), seed=0)
    assert [len(part) for part in (data.train, data.val, data.test)] == [1000, 297, 500]
    together = torch.cat([part.x for part in (data.train, data.val, data.test)])
    labels = torch.cat([part.y for part in (data.train, data.val, data.test)])
    original = load_digits()
    assert sorted(together.flatten(1).mul(16).int().tolist()) == sorted(original.data.astype(int).tolist())
    assert labels.bincount().tolist() == torch.from_numpy(original.target).bincount().tolist()
    assert data.input_shape == (1, 8, 8)


def test_they_are_what_scikit_learn_says_with_and_without_its_file(monkeypatch):
    original = load_digits()
    for missing in (False, True):
        if missing:
            monkeypatch.setattr(digits, "find_spec", lambda _: None)
        pixels, labels = digits.read.__wrapped__()
        assert pixels.tolist() == original.data.tolist()
        assert labels.tolist() == original.target.tolist()


def test_the_test_set_is_the_same_for_every_seed():
    assert torch.equal(prepare(digits.load(), seed=0).test.x, prepare(digits.load(), seed=1).test.x)
