"""Data sets, their splits, label noise and fractions, each drawn from a seed of its own, and batches."""

from lmsweep.data.augment import Augmentation
from lmsweep.data.dataset import (
    Dataset,
    EvaluationBatches,
    Source,
    Split,
    TrainingBatches,
    fixed_choice,
    prepare,
)
from lmsweep.data.imagenet import StreamedSplit

__all__ = [
    "Augmentation",
    "Dataset",
    "EvaluationBatches",
    "Source",
    "Split",
    "StreamedSplit",
    "TrainingBatches",
    "fixed_choice",
    "prepare",
]
