"""What a network does on a split: accuracy and loss, and for trackers confusions and adversarial examples."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.attacks import fgsm
from lmsweep.data import EvaluationBatches, Split
from lmsweep.data.dataset import Batch
from lmsweep.margin.temporary import evaluating, frozen

# Inputs in a batch of evaluation. On CPUs the memory of larger activations comes fresh from the kernel for
# every batch, which took longer than the arithmetic; a thousand images of ImageNet's size would fill a GPU.
EVALUATION_VALUES = 200_000


def evaluation_batch(split: Split) -> int:
    """How many samples to evaluate at once."""
    return max(64, min(1000, EVALUATION_VALUES // math.prod(split.input_shape)))


def batches_for(network: nn.Module, split: Split) -> Iterator[Batch]:
    """The batches to evaluate a network on, where the network is and in its precision."""
    weights = next(network.parameters())
    for x, y in EvaluationBatches(split.to(weights.device), evaluation_batch(split)):
        yield x.to(weights.dtype), y


@torch.inference_mode()
def evaluate(module: torch.nn.Module, split: Split) -> dict[str, float]:
    """Accuracy and mean cross-entropy of a split, in evaluation mode."""
    correct, loss = 0, 0.0
    with evaluating(module):
        for x, y in batches_for(module, split):
            logits = module(x)
            correct += int((logits.argmax(1) == y).sum())
            loss += float(F.cross_entropy(logits.double(), y, reduction="sum"))
    return {"accuracy": correct / len(split), "loss": loss / len(split)}


@dataclass(frozen=True)
class Example:
    """A test image, what the attack made of it and the change, side by side in one picture."""

    picture: Tensor  # (channels, height, width) in [0, 1]
    caption: str


@dataclass(frozen=True)
class Portrait:
    """Of one network on its test set."""

    confusion: Tensor  # (classes, classes): how many samples of the row's class got the column's
    examples: list[Example] = field(default_factory=list)


def portrait(
    network: nn.Module, split: Split, num_classes: int, *, examples: int, epsilon: float
) -> Portrait:
    """Look at a network; it is left exactly as it was found."""
    counts = torch.zeros(num_classes * num_classes, dtype=torch.long)
    with frozen(network), torch.inference_mode():
        for x, y in batches_for(network, split):
            predicted = network(x).argmax(1)
            counts += torch.bincount((y * num_classes + predicted).cpu(), minlength=len(counts))
    confusion = counts.reshape(num_classes, num_classes)
    return Portrait(confusion, adversarial_examples(network, split, examples, epsilon))


def adversarial_examples(network: nn.Module, split: Split, count: int, epsilon: float) -> list[Example]:
    """The first `count` samples under FGSM; none when they are no images.

    The attack climbs the logit margin: a softmax that saturates would leave images as they are.
    """
    count = min(count, len(split))
    if count == 0 or len(split.input_shape) != 3 or split.input_shape[0] not in (1, 3):
        return []
    weights = next(network.parameters())
    few = EvaluationBatches(split.select(torch.arange(count)).to(weights.device), count)
    x, y = next(iter(few))
    x = x.to(weights.dtype)
    attacked = fgsm(network, x, y, epsilon=epsilon, loss="margin")
    with frozen(network), torch.inference_mode():
        before, after = network(x).argmax(1).tolist(), network(attacked).argmax(1).tolist()
    change = 0.5 + (attacked - x) / (2 * epsilon)
    pictures = torch.cat([x, attacked, change], dim=3).float().clamp(0, 1).cpu()
    return [
        Example(picture, f"class {true}: {old} before, {new} after FGSM with epsilon {epsilon:g}")
        for picture, true, old, new in zip(pictures, y.tolist(), before, after, strict=True)
    ]
