"""Lightning's loop over the steps of training, without what it looks up at every step for nobody."""

from collections.abc import Callable
from typing import Any, cast

import pytorch_lightning as pl
from pytorch_lightning.loops.fetchers import _DataFetcher
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop
from torch import Tensor

from lmsweep.data.batches import Batch
from lmsweep.training.module import Classifier


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
