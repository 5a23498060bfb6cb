"""From a stored run to its network and its data."""

from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from lmsweep.config.evaluation import StoredRunsConfig
from lmsweep.data import Dataset, EvaluationBatches, Split
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.runs import StoredRun
from lmsweep.training.build import build_data, build_module
from lmsweep.training.checkpoint import FINISHED, load_checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """A trained network, and the data it was trained and is tested on."""

    run: StoredRun
    network: nn.Module
    data: Dataset


class TrainedNetwork(nn.Module):
    """A trained network for images in [0, 1], or of 0 to 255 as uint8; calling it gives logits."""

    def __init__(self, network: nn.Module, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.input_shape = input_shape

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        logits: Tensor = self.network(images)
        return logits

    @torch.inference_mode()
    def predict(self, images: ArrayLike) -> Tensor:
        """The class of each image; arrays may leave out the channel when there is one only."""
        x = torch.as_tensor(images)
        wanted = ", ".join(map(str, self.input_shape))
        if x.shape[1:] == self.input_shape[1:] and self.input_shape[:1] == (1,):
            x = x.unsqueeze(1)
        if x.ndim != len(self.input_shape) + 1 or x.shape[1:] != self.input_shape:
            raise ValueError(f"images have the shape {tuple(x.shape)}: it must be (n, {wanted})")
        if x.dtype != torch.uint8 and not bool(((x >= 0) & (x <= 1)).all()):
            raise ValueError("images have values outside [0, 1]: scale them, or give uint8 (0 to 255)")
        split = Split(x, torch.zeros(len(x), dtype=torch.long))
        weights = next(self.parameters())
        parts = [self(part.to(weights)).argmax(1) for part, _ in EvaluationBatches(split, 256)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def load_run(run: StoredRun, root: str, device: torch.device, which: str = "best") -> Checkpoint:
    """The best or the last weights of a finished run, in the network they belong to.

    Data sets are read from `root`: where they were when the run was trained says nothing about here and now.
    """
    path = run.folder.checkpoint if which == "best" else run.folder.last
    state = load_checkpoint(path)
    if state is None or FINISHED not in state:
        raise UserError(f"Run {run.id} has no weights in {path}; delete its folder and train it again.")
    config = run.config.model_copy(update={"data": run.config.data.model_copy(update={"root": root})})
    data = build_data(config)
    module = build_module(config, data)
    module.load_state_dict(state["state_dict"])
    return Checkpoint(run, module.network.eval().to(device), data)


def device_of(config: StoredRunsConfig) -> torch.device:
    """Where to compute."""
    torch.set_num_threads(config.threads)
    if config.accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigError("accelerator=gpu needs a GPU that torch can use; use auto or cpu.")
    gpu = config.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


def batches_of(config: StoredRunsConfig, data: Dataset) -> EvaluationBatches:
    """The samples to evaluate on, in the order they are stored in."""
    split = {"test": data.test, "val": data.val, "train": data.train}[config.split]
    if config.samples is not None and config.samples < len(split):
        split = split.select(torch.arange(config.samples))
    return EvaluationBatches(split, config.batch_size)
