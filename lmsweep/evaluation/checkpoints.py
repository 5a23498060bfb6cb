"""From a stored run to its network and its data."""

from dataclasses import dataclass

import torch
from torch import nn

from lmsweep.config.evaluation import StoredRunsConfig
from lmsweep.data import Dataset, EvaluationBatches
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.runs import StoredRun
from lmsweep.evaluation.trust import check_types
from lmsweep.training.build import build_data, build_module
from lmsweep.training.checkpoint import FINISHED, load_or_set_aside


@dataclass(frozen=True)
class Checkpoint:
    """A trained network, and the data it was trained and is tested on."""

    run: StoredRun
    network: nn.Module
    data: Dataset


def load_run(run: StoredRun, root: str, device: torch.device) -> Checkpoint:
    """The selected weights of a finished run, in the network they belong to.

    Data sets are read from `root`: where they were when the run was trained says nothing about here and now.
    """
    state = load_or_set_aside(run.folder.checkpoint)
    if state is None or FINISHED not in state:
        raise UserError(
            f"Run {run.id} has no weights in {run.folder.checkpoint}; train it again with force=true."
        )
    if run.trust is not None:
        check_types(run.config, run.trust)
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
