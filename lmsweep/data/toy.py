"""Two classes in the plane, like Fig. 1 (b): a few training points, many test points."""

import numpy as np
import torch
from sklearn.datasets import make_moons

from lmsweep.data.dataset import Source, Split

# make_moons lies in [-1, 2] x [-0.5, 1] before noise; this frame leaves room for it.
LOW, HIGH = np.array([-2.0, -1.5]), np.array([3.0, 2.0])


def load(train_size: int, validation_size: int, test_size: int, noise: float) -> Source:
    """Return two interleaved half moons in the unit square; `noise` is in units of the moons' radius.

    The paper does not say what its toy data is; moons need a bent boundary too. All points are one fixed
    draw, and a run's seed decides which `train_size` of the pool it trains on.
    """
    if min(train_size, validation_size, test_size) < 1:
        raise ValueError("every size must be at least 1")
    pool = train_size + validation_size
    points, labels = make_moons(pool + test_size, noise=noise, random_state=0)
    x = torch.from_numpy((points - LOW) / (HIGH - LOW)).float().clamp(0, 1)
    y = torch.from_numpy(labels).long()
    return Source(Split(x[:pool], y[:pool]), Split(x[pool:], y[pool:]), 2, validation_size)
