"""`run(config, folder)`: train one network, choose its weights on validation data, evaluate them."""

import logging
import math
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_lightning.loggers.logger import DummyLogger, Logger

from lmsweep.config import RunConfig
from lmsweep.data import Dataset, EvaluationBatches, Split, TrainingBatches
from lmsweep.errors import ConfigError
from lmsweep.provenance import provenance
from lmsweep.seeds import derive_seed
from lmsweep.margin import MarginLoss
from lmsweep.tracking import trackers
from lmsweep.training.build import (
    build_adversarial,
    build_data,
    build_margin,
    build_module,
    build_telemetry,
)
from lmsweep.training.checkpoint import FINISHED, RunCheckpoint, load_checkpoint, save_finished
from lmsweep.training.module import Classifier
from lmsweep.training.records import JsonLinesLogger, LossRecord, RichProgress
from lmsweep.training.speed import check_speed, speed_up
from lmsweep.training.sync_batch_norm import sync_batch_norm
from lmsweep.training.world import ALONE, Company, Environment, NoCompany, World

# Inputs in a batch of evaluation. On CPUs the memory of larger activations comes fresh from the kernel for
# every batch, which took longer than the arithmetic; a thousand images of ImageNet's size would fill a GPU.
EVALUATION_VALUES = 200_000


@dataclass
class Job:
    """A run whose parts have been built, and so are known to fit together."""

    config: RunConfig
    data: Dataset
    module: Classifier
    margin: MarginLoss | None
    telemetry: pl.Callback | None


def prepare_run(config: RunConfig) -> Job:
    """Build everything a run needs, without side effects; ConfigError says what does not fit."""
    if config.trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigError("trainer.accelerator=gpu needs a GPU that torch can use; use auto or cpu.")
    gpus = torch.cuda.device_count() if config.trainer.accelerator != "cpu" else 0
    if 1 < gpus < config.trainer.devices:  # a cluster may show each process just its own one
        raise ConfigError(
            f"trainer.devices={config.trainer.devices} needs so many GPUs, and there are {gpus}; lower it."
        )
    check_speed(config)
    torch.set_num_threads(config.trainer.threads)
    data = build_data(config)
    module = build_module(config, data)
    speed_up(module, config)
    return Job(config, data, module, build_margin(config, module), build_telemetry(config, module, data))


def run(
    job: Job,
    run_id: str,
    folder: Path,
    check_claim: Callable[[], object] = lambda: None,
    company: Company | None = None,
) -> dict[str, Any]:
    """Train (or go on training) in `folder` and return the results.

    `check_claim` is called before a checkpoint is replaced, and raises when another process has the run.
    `company` brings the other processes that share the training; this one is rank 0.
    """
    started = time.monotonic()
    checkpoint_path = folder / "checkpoint.ckpt"
    checkpoint = load_checkpoint(checkpoint_path)
    before = (
        float(checkpoint.get("seconds", 0.0)) if checkpoint else 0.0
    )  # of earlier attempts, as far as they count

    def seconds() -> float:
        return before + time.monotonic() - started

    if checkpoint is not None and FINISHED in checkpoint:
        # Stopped between the end of training and the record of its results.
        chosen, train_seconds = checkpoint[FINISHED], before
        job.module.load_state_dict(checkpoint["state_dict"])
    else:
        keeper = RunCheckpoint(checkpoint_path, len(job.data.val), check_claim, seconds)
        with (company or NoCompany()).joined() as world:
            chosen = _train(job, run_id, folder, checkpoint, keeper, world)
        train_seconds = seconds()
        check_claim()
        save_finished(checkpoint_path, job.module, chosen, train_seconds)
    data, config = job.data, job.config
    metrics: dict[str, Any] = dict(chosen)
    for name, split in (("train", data.train), ("val", data.val), ("test", data.test)):
        metrics |= {f"{name}_{key}": value for key, value in evaluate(job.module, split).items()}
    return {
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


def take_part(job: Job, run_id: str, folder: Path, world: World) -> None:
    """What all ranks but 0 do of a run: their share of the training. They read `folder` and leave it alone."""
    path = folder / "checkpoint.ckpt"
    _train(job, run_id, folder, load_checkpoint(path), RunCheckpoint(path, len(job.data.val)), world)


def _train(
    job: Job,
    run_id: str,
    folder: Path,
    checkpoint: dict[str, Any] | None,
    keeper: RunCheckpoint,
    world: World = ALONE,
) -> dict[str, Any]:
    config, data, module = job.config, job.data, job.module
    step = checkpoint["global_step"] if checkpoint else 0
    log_every = config.trainer.log_every
    adversarial = build_adversarial(config)
    callbacks = [
        *([job.margin] if job.margin else []),
        *([adversarial] if adversarial else []),
        LossRecord(log_every),
        *([job.telemetry] if job.telemetry else []),
        RichProgress(f"{config.method_name()} on {config.data.name}"),
        keeper,
    ]
    _quiet_lightning()
    trainer = pl.Trainer(
        accelerator=config.trainer.accelerator,
        devices=world.device(config.trainer.accelerator),
        strategy=world.strategy(),
        plugins=[Environment(world)],
        use_distributed_sampler=False,
        precision=config.trainer.precision,
        max_steps=config.trainer.max_steps,
        max_epochs=-1,
        val_check_interval=config.trainer.val_every,
        check_val_every_n_epoch=None,
        gradient_clip_val=config.trainer.gradient_clip,
        log_every_n_steps=log_every,
        logger=_loggers(config, run_id, folder, step) if world.rank == 0 else [DummyLogger()],
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    # Signals are for those who started this process: Lightning would talk to other ranks out of turn.
    trainer._signal_connector.register_signal_handlers = _nothing  # type: ignore[method-assign]
    device = trainer.strategy.root_device
    train, val = data.train.to(device), data.val.to(device)
    stream = TrainingBatches(
        train,
        config.trainer.batch_size,
        seed=config.seed,
        start=step,
        augment=data.augment,
        share=world.share,
    )
    validation = EvaluationBatches(val, evaluation_batch(val), world.share)
    torch.manual_seed(derive_seed(config.seed, f"training/{world.rank}/{step}" if world.rank else "training"))
    try:
        with _shared(job, world, step):
            trainer.fit(
                module,
                train_dataloaders=stream,
                val_dataloaders=validation,
                ckpt_path=folder / "checkpoint.ckpt" if checkpoint else None,
                weights_only=True,
            )
    except SystemExit as stop:
        # Lightning turns Ctrl-C into exit(1), which would look like a failure.
        if trainer.interrupted:
            raise KeyboardInterrupt from stop
        raise
    if keeper.seen_step != trainer.global_step:  # the last steps may lie after the last validation
        trainer.validate(module, validation, verbose=False)
    if config.trainer.selection == "best":
        module.load_state_dict(keeper.best_weights)
        return {"selected_step": keeper.best_step, "steps": trainer.global_step}
    return {"selected_step": trainer.global_step, "steps": trainer.global_step}


def _loggers(config: RunConfig, run_id: str, folder: Path, step: int) -> list[Logger]:
    lines = JsonLinesLogger(folder / "metrics.jsonl", config.trainer.max_steps, step)
    return [lines, *trackers(config, run_id, folder)]


def _shared(job: Job, world: World, step: int) -> AbstractContextManager[None]:
    """What training in several processes needs to give what one process gives."""
    if job.margin and job.module.compiled:
        job.margin.batched = False
    if world.size == 1:
        return nullcontext()
    steps: list[Any] = [None] * world.size
    dist.all_gather_object(steps, step)
    if len(set(steps)) > 1:
        raise RuntimeError(
            f"the processes of the run found checkpoints of steps {', '.join(map(str, steps))}: "
            "all of them must see the same outputs folder"
        )
    per_sample = False
    if job.margin:
        job.margin.batched = False
        # The synchronised batch norm does itself what the callback would do to the plain one.
        per_sample, job.margin.batch_norm = job.margin.batch_norm == "per_sample", "batch"
    return sync_batch_norm(job.module, per_sample=per_sample, compiled=job.module.compiled)


def evaluation_batch(split: Split) -> int:
    """How many samples to evaluate at once."""
    return max(64, min(1000, EVALUATION_VALUES // math.prod(split.input_shape)))


@torch.inference_mode()
def evaluate(module: torch.nn.Module, split: Split) -> dict[str, float]:
    """Accuracy and mean cross-entropy of a split, in evaluation mode; leaves the module's mode as it was."""
    training = module.training
    module.eval()
    correct, loss = 0, 0.0
    weights = next(module.parameters())
    device = weights.device
    for x, y in EvaluationBatches(split.to(device), evaluation_batch(split)):
        logits = module(x.to(weights.dtype))
        correct += int((logits.argmax(1) == y).sum())
        loss += float(F.cross_entropy(logits.double(), y, reduction="sum"))
    module.train(training)
    return {"accuracy": correct / len(split), "loss": loss / len(split)}


def _nothing() -> None:
    pass


def _quiet_lightning() -> None:
    # Its start-up notices repeat for every run of a sweep; warnings about workers do not fit data in memory.
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for module in ("pytorch_lightning", "lightning_fabric"):
        warnings.filterwarnings("ignore", module=module)
