"""The callbacks of a run: they watch its loss, show progress, measure distances, and attack batches."""

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from html import escape
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from lmsweep.attacks.fgsm import fgsm_direction
from lmsweep.attacks.pgd import pgd_examples
from lmsweep.attacks.trajectory import AttackLoss, per_sample, project
from lmsweep.data import EvaluationBatches, Split
from lmsweep.data.dataset import Batch
from lmsweep.errors import FinalError
from lmsweep.margin import margin_distance
from lmsweep.margin.callback import ReversibleCallback
from lmsweep.margin.layers import capture
from lmsweep.margin.temporary import evaluating, frozen, replaced
from lmsweep.seeds import ALL, Share, derive_seed, to_device

# Steps between looks at the loss: fixed, so that how often metrics are written cannot decide over a failure.
CHECK_EVERY = 10
DRAW_EVERY_SECONDS = 0.2


class DivergedError(FinalError):
    """The loss is not a number any more."""


class LossRecord(pl.Callback):
    """Record the total loss and the learning rate every few steps, and fail when the loss is not finite."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the loss that Lightning kept; not at every step, because reading it waits for the GPU."""
        step = trainer.global_step
        last = step == trainer.max_steps
        if not last and step % CHECK_EVERY and step % self.every:
            return
        loss = float(trainer.strategy.reduce(outputs["loss"], reduce_op="mean"))  # over all processes
        if not math.isfinite(loss):
            raise DivergedError(f"the loss was {loss} at step {step}: training diverged")
        values = {"train_loss": loss, "learning_rate": trainer.optimizers[0].param_groups[0]["lr"]}
        if step % self.every == 0:
            pl_module.log_dict(values)
        elif last:  # Lightning drops what is logged off its interval
            for logger in trainer.loggers:
                logger.log_metrics(values, step - 1)


class NotebookBar:
    """A bar below the cell of a notebook, drawn by the browser; rich's own would need ipywidgets."""

    def __init__(self, label: str, total: int) -> None:
        from IPython.display import HTML, display

        self.label, self.total, self.note, self.html = label, total, "", HTML
        self.shown = display(HTML(""), display_id=True)

    def update(self, _task: Any, completed: int, note: str | None = None) -> None:
        """Move the bar."""
        self.note = note or self.note
        told = escape(f"{self.label}: step {completed}/{self.total} {self.note}")
        bar = f"<progress value='{completed}' max='{self.total}'></progress>"
        self.shown.update(self.html(f"{bar} {told}"))

    def stop(self) -> None:
        """Leave the bar as it is."""


class RichProgress(ReversibleCallback):
    """A progress bar on a terminal and in a notebook, a line per validation elsewhere."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label
        self.console = Console(file=sys.stderr)
        self.progress: Progress | NotebookBar | None = None
        self.task: Any = None
        self.drawn = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar at the step training starts from."""
        if not trainer.is_global_zero:
            return
        total, step = trainer.max_steps, trainer.global_step
        if self.console.is_jupyter:
            self.progress = NotebookBar(self.label, total)
        elif self.console.is_terminal:
            label, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
            columns = (label, BarColumn(), MofNCompleteColumn(), note, TimeRemainingColumn())
            self.progress = Progress(*columns, console=self.console)
            self.task = self.progress.add_task(self.label, total=total, completed=step, note="")
            self.progress.start()
        self.undo.callback(self._close, trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar a few times per second, not at every step."""
        now = time.monotonic()
        if self.progress is not None and now - self.drawn > DRAW_EVERY_SECONDS:
            self.drawn = now
            self.progress.update(self.task, completed=trainer.global_step)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the validation accuracy."""
        note = f"validation {float(trainer.callback_metrics['val_accuracy']):.1%}"
        if self.progress is not None:
            self.progress.update(self.task, completed=trainer.global_step, note=note)
        elif trainer.is_global_zero and not self.console.is_terminal:
            self.console.print(f"{self.label}: step {trainer.global_step}/{trainer.max_steps}, {note}")

    def _close(self, trainer: pl.Trainer) -> None:
        if self.progress is not None:
            self.progress.update(self.task, completed=trainer.global_step)
            self.progress.stop()
            self.progress = None


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


@dataclass(eq=False)
class DistanceTelemetry(pl.Callback):
    """Record `distance/<split>/<place>` before the first step, every so many steps and after the last one."""

    splits: Mapping[str, Split]
    places: Mapping[str, str]  # layers, as `resolve_layers` names them, by their name in the record
    _: KW_ONLY
    every: int  # steps between two measurements
    norm: float | str
    batch_size: int  # samples at once

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
        device, layers = next(module.parameters()).device, list(self.places.values())
        values = {}
        for name, split in self.splits.items():
            batches = EvaluationBatches(split.to(device), self.batch_size)
            found = mean_distances(module, batches, layers, norm=self.norm)
            for place, value in zip(self.places, found, strict=True):
                values[f"distance/{name}/{place}"] = value
        return values


def truncated_normal(count: int, largest: float, generator: torch.Generator) -> Tensor:
    """Draw from a normal distribution of mean 0 and deviation largest / 2, restricted to [0, largest].

    Kurakin et al. draw epsilon so (up to 16 of 255, deviation 8), because a network trained on a single
    epsilon is robust against that one only.
    """
    top = torch.special.ndtr(torch.tensor(2.0, dtype=torch.float64))
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    return (largest / 2 * torch.special.ndtri(0.5 + uniform * (top - 0.5))).float()


def adversarial_batch(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    kind: Literal["fgsm", "pgd"],
    epsilon: float,
    fraction: float,
    seed: int,
    random_epsilon: bool = False,
    label: Literal["given", "predicted"] = "given",
    loss: AttackLoss = "xent",
    alpha: float = 0.01,
    steps: int = 40,
    share: Share = ALL,
) -> Tensor:
    """Return `x` with its first `fraction` replaced by adversarial examples made on `model`.

    Batches are shuffled, so the first samples are random ones. The network runs in evaluation mode: its
    dropout draws nothing and batch norm keeps its statistics. Random numbers depend on `seed` alone. When
    `x` is a `share` of the batch, what happens to its samples is what happens to them in the whole.

    `fgsm` follows Kurakin et al. (2017, "Adversarial machine learning at scale"): half of the batch, each
    sample with an epsilon of its own from a normal distribution cut off at the largest one, and the
    predicted class in place of the label. An FGSM step computed from the true label leaks it: the network
    learns to read the answer from the pattern of signs and ends up better on adversarial than on clean
    images. They weigh adversarial samples by 0.3; here clean and adversarial samples weigh the same,
    because the batch then stays a batch and any loss on it (cross-entropy, hinge, margin) applies as it
    is. `pgd` follows Madry et al. (2018): the whole batch, a random start, 40 steps of 0.01 inside
    epsilon 0.3 for MNIST.
    """
    total = round(fraction * share.whole(len(x)))
    count = share.first(total)
    if count == 0:
        return x
    part, labels = x[:count], y[:count]
    with frozen(model):
        if label == "predicted":
            with torch.no_grad():
                labels = model(part).argmax(1)
        if kind == "pgd":
            options: dict[str, Any] = {"alpha": alpha, "steps": steps, "seed": seed, "share": share}
            changed = pgd_examples(model, part, labels, epsilon=epsilon, loss=loss, **options).x
        else:
            size: float | Tensor = epsilon
            if random_epsilon:
                generator = torch.Generator().manual_seed(derive_seed(seed, "epsilon"))
                drawn = share.of(truncated_normal(total, epsilon, generator))
                size = per_sample(to_device(drawn, x.device).to(x.dtype), x)
            sign, _ = fgsm_direction(model, part, labels, loss=loss, targeted=False)
            changed = project(part + size * sign, part, size, clip_pixels=True)
    return torch.cat([changed, x[count:]])


class AdversarialTraining(ReversibleCallback):
    """Make part of every training batch adversarial before `training_step` sees it.

    The batch is changed where Lightning hands it to the module, so that whatever wraps the step, such as
    `MarginLoss`, sees the one forward pass on the adversarial batch and none of the attack's. The attack runs
    on the inner `network`. Arguments are those of `adversarial_batch`; the examples of a step depend on the
    run's seed and the step's number only, so a resumed run makes the same ones.
    """

    def __init__(self, *, seed: int, **options: Any) -> None:
        super().__init__()
        self.seed = seed
        self.options = options

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Replace the hook through which Lightning hands batches to the module."""
        handed_on = pl_module.on_after_batch_transfer
        network = pl_module.network
        if not isinstance(network, nn.Module):
            raise TypeError(f"{type(pl_module).__name__}.network is no torch.nn.Module to attack")

        def on_after_batch_transfer(batch: Any, dataloader_idx: int) -> Any:
            batch = handed_on(batch, dataloader_idx)
            if not trainer.training:
                return batch
            x, y, *rest = batch
            seed = derive_seed(self.seed, f"adversarial/{trainer.global_step}")
            share = Share(trainer.global_rank, trainer.world_size)
            return adversarial_batch(network, x, y, seed=seed, share=share, **self.options), y, *rest

        self.undo.enter_context(replaced(pl_module, "on_after_batch_transfer", on_after_batch_transfer))
