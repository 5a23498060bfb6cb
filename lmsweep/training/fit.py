"""The training itself: Lightning, fed and watched, in this process and those that share the run."""

import logging
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.loggers.logger import DummyLogger
from pytorch_lightning.loops.fetchers import _DataFetcher
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor

from lmsweep.data import EvaluationBatches, TrainingBatches
from lmsweep.data.dataset import Batch
from lmsweep.margin.batch_norm import sync_batch_norm
from lmsweep.margin.layers import INPUT
from lmsweep.seeds import derive_seed
from lmsweep.training.build import Parts, build_adversarial
from lmsweep.training.callbacks import LossRecord, RichProgress
from lmsweep.training.checkpoint import JsonLinesLogger, RunCheckpoint
from lmsweep.training.evaluate import evaluation_batch
from lmsweep.training.module import Classifier
from lmsweep.training.world import ALONE, Environment, World


def fit(
    job: Parts,
    checkpoint: dict[str, Any] | None,
    keeper: RunCheckpoint,
    world: World = ALONE,
    lines: JsonLinesLogger | None = None,
) -> int:
    """Train from `checkpoint` or from the start; the module then has its last weights, `keeper` the best.

    `lines` is metrics.jsonl, which only rank 0 writes. Returns the number of steps.
    """
    config, data, module, gpu = job.config, job.data, job.module, job.config.trainer.gpu
    step = checkpoint["global_step"] if checkpoint else 0
    log_every = config.trainer.log_every
    amount = f"{len(data.train)} images of " if config.acquisition.active else ""
    progress = RichProgress(f"{config.method_name()} on {amount}{config.data.name}")
    ours = (job.margin, build_adversarial(config), LossRecord(log_every), job.telemetry)
    callbacks = [callback for callback in (*ours, *job.callbacks, progress, keeper) if callback]
    _quiet_lightning()
    trainer = pl.Trainer(
        accelerator=config.trainer.accelerator,
        devices=world.device(config.trainer.accelerator) if gpu is None else [gpu],
        # Synchronised batch norm keeps buffers equal; sending them around at every step is not needed.
        strategy=DDPStrategy(broadcast_buffers=False) if world.size > 1 else "auto",
        plugins=[Environment(world)],
        use_distributed_sampler=False,
        precision=config.trainer.precision,
        max_steps=config.trainer.max_steps,
        max_epochs=-1,
        val_check_interval=config.trainer.val_every,
        check_val_every_n_epoch=None,
        gradient_clip_val=config.trainer.gradient_clip,
        log_every_n_steps=log_every,
        logger=lines or DummyLogger(),
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        profiler=_NoProfiler(),
        default_root_dir=keeper.path.parent,
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
                ckpt_path=keeper.path if checkpoint else None,
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


class _NoProfiler(PassThroughProfiler):
    """Lightning enters a context around each of 40 hooks per step; here one empty context serves all."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return self._nothing


def _shared(job: Parts, world: World, step: int) -> AbstractContextManager[None]:
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


class StepLoop(_TrainingEpochLoop):
    """Trains a Classifier as Lightning does, with the same hooks in the same order and the same bits.

    At every step Lightning calls some 40 hooks of the module and of all callbacks, nearly all of them empty,
    searches a signature, and collects metrics even where there are no new ones: a tenth of the time of a
    small network. Here only those hooks of callbacks are called that do something, and only those of the
    module that a Classifier has. Runs of several processes or in float16, whose steps hold more than that,
    and the first step after a checkpoint stay Lightning's own.
    """

    def __init__(self, trainer: pl.Trainer, weights_only: bool = False) -> None:
        """`weights_only` keeps the loss from making a gradient at images that a margin asks to have one."""
        super().__init__(trainer, max_steps=trainer.max_steps)
        self.weights_only = weights_only
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    def advance(self, data_fetcher: _DataFetcher) -> None:
        """Take one step."""
        trainer = self.trainer
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        if self.restarting or scaled or trainer.world_size > 1:
            super().advance(data_fetcher)
            return
        self.val_loop.restarting = False
        module, records = cast(Classifier, trainer.lightning_module), trainer._logger_connector
        batch, _, _ = next(data_fetcher)
        number = self.batch_idx + 1
        self.batch_progress.is_last_batch = data_fetcher.done
        # Batches come on their device; adversarial training changes them here.
        batch = module.on_after_batch_transfer(trainer.precision_plugin.convert_input(batch), 0)
        self.batch_progress.increment_ready()
        records.on_batch_start(batch)
        self._call("on_train_batch_start", batch, number)
        self.batch_progress.increment_started()
        outputs = self._update(module, batch, number)
        self.batch_progress.increment_processed()
        self.update_lr_schedulers("step", update_plateau_schedulers=False)
        self._call("on_train_batch_end", outputs, batch, number)
        if records.should_update_logs or self._should_check_val_fx(data_fetcher):
            records.on_batch_end()  # collects metrics
        elif trainer._results is not None:
            trainer._results.batch = trainer._results.batch_size = None
        self.batch_progress.increment_completed()
        records.update_train_step_metrics()

    def _update(self, module: Classifier, batch: Batch, number: int) -> dict[str, Tensor]:
        """Forward and backward pass and a step of the optimizer; what callbacks are told of it."""
        trainer, outputs = self.trainer, dict[str, Tensor]()
        optimizer, progress = trainer.optimizers[0], self.automatic_optimization.optim_progress.optimizer

        def passes() -> Tensor:
            module._current_fx_name = "training_step"
            with trainer.precision_plugin.train_step_context():
                loss = module.training_step(batch, number)
            module._current_fx_name = None
            outputs["loss"] = loss.detach()
            progress.zero_grad.increment_ready()
            self._call("on_before_zero_grad", optimizer)
            progress.zero_grad.increment_started()
            optimizer.zero_grad()
            progress.zero_grad.increment_completed()
            self._call("on_before_backward", loss)
            if self.weights_only:
                loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]])
            else:
                loss.backward()
            self._call("on_after_backward")
            self._call("on_before_optimizer_step", optimizer)
            if trainer.gradient_clip_val:
                module.clip_gradients(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)
            return outputs["loss"]

        progress.step.increment_ready()
        module.optimizer_step(trainer.current_epoch, number, optimizer, passes)
        progress.step.increment_completed()
        return outputs

    def _call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of those callbacks that define it."""
        if hook not in self._hooks:
            empty = getattr(pl.Callback, hook)
            callbacks: list[pl.Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
            found = [getattr(callback, hook) for callback in callbacks]
            self._hooks[hook] = [call for call in found if getattr(call, "__func__", None) is not empty]
        calls = self._hooks[hook]
        if not calls:
            return
        module = self.trainer.lightning_module
        module._current_fx_name = hook
        for call in calls:
            call(self.trainer, module, *arguments)
        module._current_fx_name = None
