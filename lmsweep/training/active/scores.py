"""How much a network would learn from the label of an image, by Monte-Carlo dropout (Gal et al. 2017).

`probabilities` of shape (passes, images, classes) are p(y = c | x, w_t), where w_t is the network with the
units that the dropout of pass t leaves.
"""

import torch
from torch import Tensor


def bald_scores(probabilities: Tensor) -> Tensor:
    """The mutual information between an image's label and the weights, in nats, one number per image.

    I[y, w | x] = H[y | x] - E_w H[y | x, w]: large where each pass is sure of its answer and the passes
    disagree. Both terms come from the same passes, so the score is never negative; rounding is cut off.

    >>> sure_but_torn, unsure = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]
    >>> bald_scores(torch.tensor([sure_but_torn, unsure]).transpose(0, 1))
    tensor([0.6931, 0.0000])
    """
    return (max_entropy_scores(probabilities) - _entropy(probabilities).mean(0)).clamp_min(0)


def max_entropy_scores(probabilities: Tensor) -> Tensor:
    """The entropy H[y | x] of the mean prediction, in nats: large where the passes together are unsure."""
    return _entropy(probabilities.mean(0))


def _entropy(probabilities: Tensor) -> Tensor:
    return -torch.special.xlogy(probabilities, probabilities).sum(-1)  # 0 log 0 = 0
