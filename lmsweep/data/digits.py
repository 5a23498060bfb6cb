"""scikit-learn's handwritten digits: 1797 images of 8x8 pixels that come with the package."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from lmsweep.data.dataset import Source, Split

TEST_SIZE, VALIDATION_SIZE = 500, 297  # which leaves 1000 for training


def load() -> Source:
    """Return the digits. The test set is one fixed draw, the same for every seed."""
    pixels, labels = read()
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.from_numpy(pixels[order].reshape(-1, 1, 8, 8) / 16.0).float()
    y = torch.from_numpy(labels[order]).long()
    return Source(
        pool=Split(x[TEST_SIZE:], y[TEST_SIZE:]),
        test=Split(x[:TEST_SIZE], y[:TEST_SIZE]),
        num_classes=10,
        validation_size=VALIDATION_SIZE,
    )


@cache
def read() -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 16, 64 per image, and labels; callers share the arrays and must not change them.

    From scikit-learn's file, without importing it where that can be done: the import takes half a second, in
    every process that trains.
    """
    package = find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or []
    for path in (Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders):
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1].astype(int)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.data, bunch.target
