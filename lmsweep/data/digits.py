"""scikit-learn's handwritten digits: 1797 images of 8x8 pixels that come with the package."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from lmsweep.data.dataset import Source, Split

TEST_SIZE, VALIDATION_SIZE = 500, 297  # which leaves 1000 for training


def load() -> Source:
    """Return the digits. The test set is one fixed draw, the same for every seed."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = torch.from_numpy(bunch.images[order] / 16.0).float().unsqueeze(1)
    y = torch.from_numpy(bunch.target[order]).long()
    return Source(
        pool=Split(x[TEST_SIZE:], y[TEST_SIZE:]),
        test=Split(x[:TEST_SIZE], y[:TEST_SIZE]),
        num_classes=10,
        validation_size=VALIDATION_SIZE,
    )
