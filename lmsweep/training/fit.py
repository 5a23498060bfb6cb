"""The training itself: Lightning, fed and watched, in this process and those that share the run."""

import logging
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.loggers.logger import DummyLogger, Logger
from pytorch_lightning.profilers import PassThroughProfiler

from lmsweep.config.run import RunConfig
from lmsweep.data import EvaluationBatches, TrainingBatches
from lmsweep.files import Lease
from lmsweep.margin.batch_norm import sync_batch_norm
from lmsweep.margin.layers import INPUT
from lmsweep.seeds import derive_seed
from lmsweep.training.build import build_adversarial
from lmsweep.training.checkpoint import METRICS, RunCheckpoint
from lmsweep.training.evaluate import evaluation_batch
from lmsweep.training.records import JsonLinesLogger, LossRecord, Mirror, RichProgress, no_mirror
from lmsweep.training.steps import StepLoop
from lmsweep.training.world import ALONE, Environment, World

if TYPE_CHECKING:
    from lmsweep.training.run import Parts


def fit(
    job: "Parts",
    folder: Path,
    checkpoint: dict[str, Any] | None,
    keeper: RunCheckpoint,
    world: World = ALONE,
    lines: JsonLinesLogger | None = None,
) -> int:
    """Train from `checkpoint` or from the start; the module then has its last weights, `keeper` the best.

    `lines` is metrics.jsonl, where it is open already. Returns the number of steps.
    """
    config, data, module, gpu = job.config, job.data, job.module, job.config.trainer.gpu
    step = checkpoint["global_step"] if checkpoint else 0
    log_every = config.trainer.log_every
    amount = f"{len(data.train)} images of " if config.acquisition.active else ""
    progress = RichProgress(f"{config.method_name()} on {amount}{config.data.name}")
    callbacks = (
        job.margin,
        build_adversarial(config),
        LossRecord(log_every),
        job.telemetry,
        *job.callbacks,
        progress,
        keeper,
    )
    logger: Logger = DummyLogger()
    if world.rank == 0:
        logger = lines or open_lines(config, folder, checkpoint, keeper.lease)
    _quiet_lightning()
    trainer = pl.Trainer(
        accelerator=config.trainer.accelerator,
        devices=world.device(config.trainer.accelerator) if gpu is None else [gpu],
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
        logger=logger,
        callbacks=[callback for callback in callbacks if callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        profiler=_NoProfiler(),
        default_root_dir=folder,
    )
    at_images = job.margin is not None and INPUT in job.margin.check(module)
    trainer.fit_loop.epoch_loop = StepLoop(trainer, weights_only=at_images)
    # The process that started this one handles signals. Lightning's would send messages to other ranks.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    device = trainer.strategy.root_device
    both = data.val if data.clean is None else data.val.with_labels(torch.stack([data.val.y, data.clean], 1))
    train, val = data.train.to(device), both.to(device)
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
    return trainer.global_step


def open_lines(
    config: RunConfig,
    folder: Path,
    checkpoint: dict[str, Any] | None,
    lease: Lease,
    mirror: Mirror = no_mirror,
    before: int = 0,
) -> JsonLinesLogger:
    """Open metrics.jsonl where `checkpoint` left it; `before` it the run took so many steps of other rounds.

    `mirror` is told every line.
    """
    step = before + (checkpoint["global_step"] if checkpoint else 0)
    size, _ = checkpoint[METRICS] if checkpoint and METRICS in checkpoint else (None, None)
    path = folder / "metrics.jsonl"
    return JsonLinesLogger(path, config.trainer.max_steps, step, mirror, lease, size)


class _NoProfiler(PassThroughProfiler):
    """Lightning enters a context around each of 40 hooks per step; here one empty context serves all."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return self._nothing


def _shared(job: "Parts", world: World, step: int) -> AbstractContextManager[None]:
    """Make what several processes compute together the same as what one process would compute."""
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


def _quiet_lightning() -> None:
    # Start-up notices would repeat for every run of a sweep, and data in memory needs no data-loader workers,
    # which Lightning warns about.
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for module in ("pytorch_lightning", "lightning_fabric"):
        warnings.filterwarnings("ignore", module=module)
