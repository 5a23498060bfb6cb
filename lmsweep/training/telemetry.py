"""The mean distance to the boundary while a network trains (the paper's figures 12 to 14), for any method."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmsweep.data import EvaluationBatches, Split
from lmsweep.data.dataset import Batch
from lmsweep.margin import margin_distance
from lmsweep.margin.layers import capture
from lmsweep.margin.temporary import evaluating


def mean_distances(
    module: nn.Module, batches: Iterable[Batch], layers: Sequence[str], *, norm: float | str = 2.0
) -> list[float]:
    """Return the mean over samples of the distance to the nearest other class, at each layer.

    The distance is that of Eq. 7, negative where a sample lies on the wrong side of the nearest boundary. It
    is measured in evaluation mode and leaves no trace: modes, gradients, statistics of batch norm and the
    state of random generators stay as they were.
    """
    total, count = torch.zeros(len(layers), dtype=torch.float64), 0
    device = next(module.parameters()).device
    # Compiled layers cannot give the gradients of several classes at once, and would be compiled anew here.
    eager = torch.compiler.set_stance("force_eager") if getattr(module, "compiled", False) else nullcontext()
    own_numbers = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with evaluating(module), eager, own_numbers, torch.enable_grad():
        for x, y in batches:
            total += _nearest(module, x, y, layers, norm).double().sum(0).cpu()
            count += len(y)
    return [float(value) for value in total / count]


def _nearest(module: nn.Module, x: Tensor, y: Tensor, layers: Sequence[str], norm: float | str) -> Tensor:
    """The distances of one batch, (samples, layers); the graph they come from is freed on return."""
    with capture(module, layers) as captured:
        module(x.to(next(module.parameters()).dtype))
    missing = [name for name in layers if name not in captured.layers]
    if missing or captured.logits is None:
        raise RuntimeError(
            f"the forward pass did not run {', '.join(missing)}: choose other layers for telemetry.layers"
        )
    at = {name: captured.layers[name] for name in layers}
    return margin_distance(captured.logits, y, at, norm=norm).detach().amin(1)


class DistanceTelemetry(pl.Callback):
    """Record `distance/<split>/<place>` before the first step, every so many steps and after the last one.

    Args:
        splits: what is measured, by name.
        places: the layers it is measured at, as `resolve_layers` names them, by the name in the record.
        every: steps between two measurements.
        norm: the norm of the distance.
        batch_size: samples at once.
    """

    def __init__(
        self,
        splits: Mapping[str, Split],
        places: Mapping[str, str],
        *,
        every: int,
        norm: float | str,
        batch_size: int,
    ) -> None:
        self.splits = splits
        self.places = places
        self.every = every
        self.norm = norm
        self.batch_size = batch_size

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the fresh network; a resumed run has done so."""
        if trainer.global_step == 0:
            self._record(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure when it is time, and before validation, so that no checkpoint is ahead of its record."""
        step = trainer.global_step
        if step % self.every == 0 or step == trainer.max_steps:
            self._record(trainer, pl_module)

    def _record(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return  # the others wait with their next gradient
        values = self.measure(module)
        for logger in trainer.loggers:  # a line of its own: Lightning drops what is logged off its interval
            logger.log_metrics(values, trainer.global_step - 1)  # loggers count steps from 0

    def measure(self, module: nn.Module) -> dict[str, float]:
        """The distances of the network as it is, by the names of the record."""
        device = next(module.parameters()).device
        layers = list(self.places.values())
        values = {}
        for name, split in self.splits.items():
            batches = EvaluationBatches(split.to(device), self.batch_size)
            for place, value in zip(
                self.places, mean_distances(module, batches, layers, norm=self.norm), strict=True
            ):
                values[f"distance/{name}/{place}"] = value
        return values
