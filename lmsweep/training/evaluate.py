"""Accuracy and loss of a network on a split."""

import math

import torch
import torch.nn.functional as F

from lmsweep.data import EvaluationBatches, Split
from lmsweep.margin.temporary import evaluating

# Inputs in a batch of evaluation. On CPUs the memory of larger activations comes fresh from the kernel for
# every batch, which took longer than the arithmetic; a thousand images of ImageNet's size would fill a GPU.
EVALUATION_VALUES = 200_000


def evaluation_batch(split: Split) -> int:
    """How many samples to evaluate at once."""
    return max(64, min(1000, EVALUATION_VALUES // math.prod(split.input_shape)))


@torch.inference_mode()
def evaluate(module: torch.nn.Module, split: Split) -> dict[str, float]:
    """Accuracy and mean cross-entropy of a split, in evaluation mode."""
    correct, loss = 0, 0.0
    weights = next(module.parameters())
    with evaluating(module):
        for x, y in EvaluationBatches(split.to(weights.device), evaluation_batch(split)):
            logits = module(x.to(weights.dtype))
            correct += int((logits.argmax(1) == y).sum())
            loss += float(F.cross_entropy(logits.double(), y, reduction="sum"))
    return {"accuracy": correct / len(split), "loss": loss / len(split)}
