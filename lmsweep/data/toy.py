"""Two classes in the plane, like Fig. 1 (b): a few training points, many test points."""

import numpy as np
import torch

from lmsweep.data.dataset import Source, Split

# The moons lie in [-1, 2] x [-0.5, 1] before noise; this frame leaves room for it.
LOW, HIGH = np.array([-2.0, -1.5]), np.array([3.0, 2.0])


def load(train_size: int, validation_size: int, test_size: int, noise: float) -> Source:
    """Return two interleaved half moons in the unit square; `noise` is in units of the moons' radius.

    The paper does not say what its toy data is; moons need a bent boundary too. All points are one fixed
    draw, and a run's seed decides which `train_size` of the pool it trains on.
    """
    if min(train_size, validation_size, test_size) < 1:
        raise ValueError("every size must be at least 1")
    pool = train_size + validation_size
    points, labels = moons(pool + test_size, noise)
    x = torch.from_numpy((points - LOW) / (HIGH - LOW)).float().clamp(0, 1)
    y = torch.from_numpy(labels).long()
    return Source(Split(x[:pool], y[:pool]), Split(x[pool:], y[pool:]), 2, validation_size)


def moons(count: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Half of the points on an upper half circle, half on a lower one moved into it, shuffled, with noise.

    Number for number what scikit-learn's `make_moons` gives for the seed 0, without the half second that its
    import takes.
    """
    upper = count // 2
    first, second = (np.linspace(0, np.pi, size) for size in (upper, count - upper))
    above = np.stack([np.cos(first), np.sin(first)], axis=1)
    below = np.stack([1 - np.cos(second), 1 - np.sin(second) - 0.5], axis=1)
    points = np.concatenate([above, below])
    labels = (np.arange(count) >= upper).astype(int)
    generator = np.random.RandomState(0)
    order = generator.permutation(count)
    return points[order] + generator.normal(scale=noise, size=points.shape), labels[order]
