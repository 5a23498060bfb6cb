"""Criteria on the logits alone: the baselines, and the part of the loss that the margin loss is added to."""

import torch.nn.functional as F
from torch import Tensor


def hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """Multi-class hinge: how far the best other class comes within 1 of the target's logit."""
    true = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    other = logits.scatter(1, targets.unsqueeze(1), float("-inf")).amax(1)
    return (1 - true + other).clamp_min(0).mean()


def criterion_loss(logits: Tensor, targets: Tensor, criterion: str, xent_weight: float) -> Tensor:
    """The criterion of a method: weighted cross-entropy, plus the hinge when asked for."""
    loss = xent_weight * F.cross_entropy(logits, targets)
    return loss + hinge(logits, targets) if criterion == "hinge" else loss
