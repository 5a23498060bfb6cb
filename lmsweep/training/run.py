"""`run(config, folder)`: train one network, choose its weights on validation data, evaluate them."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch

from lmsweep.config.run import RunConfig
from lmsweep.data import Dataset
from lmsweep.errors import ConfigError
from lmsweep.files import Lease
from lmsweep.margin import MarginLoss
from lmsweep.provenance import provenance
from lmsweep.training.build import (
    build_data,
    build_margin,
    build_module,
    build_telemetry,
)
from lmsweep.training.checkpoint import (
    FINISHED,
    RunCheckpoint,
    load_checkpoint,
    load_or_set_aside,
    save_finished,
)
from lmsweep.training.evaluate import evaluate
from lmsweep.training.fit import fit
from lmsweep.training.module import Classifier
from lmsweep.training.portrait import Portrait, portrait
from lmsweep.training.records import replay
from lmsweep.training.speed import check_speed, speed_up
from lmsweep.training.world import Company, NoCompany, World


class Listener(Protocol):
    """Who is told what a run records, such as a mirror of it."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line of metrics.jsonl; a run that goes on tells all lines it keeps again, from the first one."""

    def describe(
        self, results: Mapping[str, Any], portrait: Callable[[], Portrait | None], checkpoint: Path
    ) -> None:
        """What results.json says, what there is to see, and where the weights are."""


class _Silent:
    def log(self, values: Mapping[str, float], step: int) -> None:
        pass

    def describe(
        self, results: Mapping[str, Any], portrait: Callable[[], Portrait | None], checkpoint: Path
    ) -> None:
        pass


SILENT = _Silent()


@dataclass
class Parts:
    """What a run is made of, built and known to fit together."""

    config: RunConfig
    data: Dataset
    module: Classifier
    margin: MarginLoss | None
    telemetry: pl.Callback | None


def prepare_run(config: RunConfig) -> Parts:
    """Build everything a run needs, without side effects; ConfigError says what does not fit."""
    if config.trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigError("trainer.accelerator=gpu needs a GPU that torch can use; use auto or cpu.")
    gpus = torch.cuda.device_count() if config.trainer.accelerator != "cpu" else 0
    bound = gpus == 1 and int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1  # each task sees its own one
    if 0 < gpus < config.trainer.devices and not bound:
        raise ConfigError(
            f"trainer.devices={config.trainer.devices} needs so many GPUs, and torch sees {gpus}; "
            "lower it, or use trainer.accelerator=cpu."
        )
    check_speed(config)
    torch.set_num_threads(config.trainer.threads)
    data = build_data(config)
    module = build_module(config, data)
    speed_up(module, config)
    return Parts(config, data, module, build_margin(config, module), build_telemetry(config, module, data))


def run(
    job: Parts,
    run_id: str,
    folder: Path,
    lease: Lease = nullcontext,
    company: Company | None = None,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Train (or go on training) in `folder` and return the results.

    `lease` is held while a file is replaced, and raises when another process has the run.
    `company` brings the other processes that share the training; this one is rank 0.
    `listener` is told what is recorded.
    """
    started = time.monotonic()
    checkpoint_path = folder / "checkpoint.ckpt"
    checkpoint = load_or_set_aside(checkpoint_path, lease, folder / "metrics.jsonl")
    before = (
        float(checkpoint.get("seconds", 0.0)) if checkpoint else 0.0
    )  # of earlier attempts, as far as they count

    def seconds() -> float:
        return before + time.monotonic() - started

    if checkpoint is not None and FINISHED in checkpoint:
        # Stopped between the end of training and the record of its results.
        chosen, train_seconds = checkpoint[FINISHED], before
        job.module.load_state_dict(checkpoint["state_dict"])
        replay(folder / "metrics.jsonl", listener.log)
    else:
        keeper = RunCheckpoint(checkpoint_path, len(job.data.val), lease, seconds)
        with (company or NoCompany()).joined() as world:
            chosen = fit(job, folder, checkpoint, keeper, world, listener.log)
        train_seconds = seconds()
        save_finished(checkpoint_path, job.module, chosen, train_seconds, lease)
    data, config = job.data, job.config
    metrics: dict[str, Any] = dict(chosen)
    for name, split in (("train", data.train), ("val", data.val), ("test", data.test)):
        metrics |= {f"{name}_{key}": value for key, value in evaluate(job.module, split).items()}
    results = {
        "id": run_id,
        "method": config.method_name(),
        "seed": config.seed,
        "selection": config.trainer.selection,
        "metrics": metrics,
        "data": data.fingerprint,
        "seconds": seconds(),
        "train_seconds": train_seconds,
        "provenance": provenance(),
    }
    listener.describe(results, partial(_portrait, job), checkpoint_path)
    return results


def _portrait(job: Parts) -> Portrait:
    options = job.config.tracking
    return portrait(
        job.module, job.data.test, job.data.num_classes, examples=options.examples, epsilon=options.epsilon
    )


def take_part(job: Parts, folder: Path, world: World) -> None:
    """What all ranks but 0 do of a run: their share of the training. They only read what is in `folder`."""
    path = folder / "checkpoint.ckpt"
    fit(job, folder, load_checkpoint(path), RunCheckpoint(path, len(job.data.val)), world)
