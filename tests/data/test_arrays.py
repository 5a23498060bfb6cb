"""Data sets of one .npz file."""

import numpy as np
import pytest
import torch

from lmsweep.data.arrays import load
from lmsweep.errors import UserError

GOOD = {
    "x": np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2),
    "y": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.zeros((2, 2, 2), np.uint8),
    "y_test": np.array([3, 0]),
}


def saved(folder, **changed):
    np.savez(
        folder / "own.npz", **{key: value for key, value in (GOOD | changed).items() if value is not None}
    )
    return load(str(folder), "own.npz", validation_size=2)


def test_arrays_come_as_they_were_saved_with_a_channel(tmp_path):
    source = saved(tmp_path)
    assert torch.equal(source.pool.x, torch.arange(24, dtype=torch.uint8).reshape(6, 1, 2, 2))
    assert source.pool.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert source.num_classes == 4  # one class is in the test set only
    assert (source.test.input_shape, source.validation_size) == ((1, 2, 2), 2)


@pytest.mark.parametrize("shape", [(3, 2, 2), (5,)])
def test_channels_and_vectors_stay_as_they_are(tmp_path, shape):
    source = saved(tmp_path, x=np.ones((6, *shape)), x_test=np.ones((2, *shape)))
    assert source.pool.input_shape == shape
    assert source.pool.x.dtype == torch.float32


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"y_test": None}, "no array y_test"),
        ({"y": np.array([0, 1])}, "do not fit together"),
        ({"x_test": np.zeros((2, 3, 3), np.uint8)}, "do not fit together"),
        ({"x": np.full((6, 2, 2), 1.5)}, r"x in .* outside \[0, 1\]"),
        ({"x_test": np.full((2, 2, 2), np.nan)}, r"x_test in .* no numbers \(NaN\)"),
        ({"x": np.zeros((0, 2, 2)), "y": np.zeros(0, int)}, "x in .* at least one image"),
        ({"x_test": np.zeros((0, 2, 2)), "y_test": np.zeros(0, int)}, "x_test in .* at least one image"),
        ({"y": np.array([3, 7] * 3)}, "has 3 classes, and 3 among them, but not 1: .* numpy.unique"),
        ({"y": np.array([0, 1, 2, 0, 1, 1_000_000])}, "has 5 classes, and 1000000 among them, but not 4"),
        ({"x": np.zeros((6, 2, 2, 3)), "x_test": np.zeros((2, 2, 2, 3))}, "channels last: .*transpose"),
        ({"y": np.array([0.5] * 6)}, "whole numbers"),
        ({"y": np.array([-1] * 6)}, "whole numbers"),
        ({"y": np.array([{}] * 6)}, "own.npz holds something else than arrays"),
        ({"x": GOOD["x"][:2], "y": GOOD["y"][:2]}, "validation_size=2 is not allowed"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changed, sentence):
    with pytest.raises(UserError, match=sentence):
        saved(tmp_path, **changed)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"own.npz is missing: put it there"):
        load(str(tmp_path), "own.npz", validation_size=2)
    (tmp_path / "own.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(UserError, match=r"no file of numpy.savez"):
        load(str(tmp_path), "own.npz", validation_size=2)
