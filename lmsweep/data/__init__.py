"""Data sets as tensors in memory, with label noise and fractions that depend on their own seeds only."""

from lmsweep.data.batches import EvaluationBatches, TrainingBatches
from lmsweep.data.dataset import Dataset, Source, Split
from lmsweep.data.prepare import prepare

__all__ = ["Dataset", "EvaluationBatches", "Source", "Split", "TrainingBatches", "prepare"]
