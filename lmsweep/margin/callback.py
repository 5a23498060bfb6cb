"""The margin loss as a Lightning callback: the module it is added to knows nothing of margins."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, Unpack

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmsweep.margin.batch_norm import per_sample_batch_norm
from lmsweep.margin.distance import linearised_margins, sampled_classes
from lmsweep.margin.layers import OUTPUT, Captured, capture, compiled_around, resolve_layers
from lmsweep.margin.loss import layer_losses, sample_losses, telemetry
from lmsweep.margin.options import CallbackOptions, MarginOptions, distance_part, sample_size, takes
from lmsweep.margin.temporary import replaced
from lmsweep.seeds import Share, derive_seed


def second_of_batch(batch: Any) -> Tensor:
    """Class indices of a batch that is a pair (inputs, targets), as most data loaders give."""
    return batch[1]


class ReversibleCallback(pl.Callback):
    """A callback with an `undo`: what is put there, such as `replaced(...)`, ends with the fit."""

    def __init__(self) -> None:
        self.undo = ExitStack()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave everything as it was."""
        self.undo.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave everything as it was, because Lightning does not tear down after an error."""
        self.undo.close()


class MarginLoss(ReversibleCallback):
    """Add the margin loss to whatever `training_step` returns.

    `Trainer(callbacks=[MarginLoss(layers="all", gamma=1.0)])` is all it takes for a LightningModule whose
    `forward` returns logits and whose `training_step` calls `self(x)` (its last call counts).

    The step is wrapped, not the backward pass, so gradient accumulation, loss scaling and DDP treat the
    margin loss like any other part of the loss. Hooks live for one training step only.
    """

    @takes(MarginOptions)
    def __init__(
        self,
        layers: str | Sequence[str] = "all",
        weight: float = 1.0,
        *,
        targets: Callable[[Any], Tensor] = second_of_batch,
        seed: int = 0,
        **options: Unpack[CallbackOptions],
    ) -> None:
        """Choose the layers, the weight of the margin loss in the total, and any of the options below.

        `layers` is a layer set (see `resolve_layers`); `targets` finds the class indices in a batch.
        `seed` and the number of the step decide which classes `candidates="sampled"` draws, so that a resumed
        run draws the same ones.
        """
        super().__init__()
        if options["candidates"] == "sampled":
            sample_size(options)
        self.seed = seed
        self.layers = layers
        self.weight = weight
        self.targets = targets
        self.options = options
        self.batch_norm = options["batch_norm"]  # DDP sets it to "batch" and synchronises batch norm itself
        # Whether one backward pass serves several classes: None where this is faster, False where this is
        # impossible (inside torch.compile, and where backward passes talk to other processes).
        self.batched: bool | None = None
        self._names: list[str] = []

    def check(self, module: nn.Module) -> list[str]:
        """Return the names of the layers chosen in `module`; ValueError when the choice does not fit it."""
        names = resolve_layers(module, self.layers)
        for key in ("gamma", "layer_weights"):
            values = self.options[key]
            if isinstance(values, Sequence) and len(values) != len(names):
                raise ValueError(f"{key} has {len(values)} values for the layers {', '.join(names)}")
        if self.options["candidates"] == "distance":
            last_linear(module)
        hidden = [name for name in names if compiled_around(module, name)]
        if hidden:
            raise ValueError(
                f"torch.compile hides {', '.join(hidden)}: compile the layers one by one "
                "(net.conv1 = torch.compile(net.conv1)), or measure the margin at input and output only"
            )
        return names

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Resolve the layers and wrap `training_step`."""
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(pl_module).__name__} optimises by hand, so the loss it returns is not used: "
                "add lmsweep.margin.margin_loss to its loss instead of this callback"
            )
        self._names = self.check(pl_module)
        step = self._wrap(pl_module, pl_module.training_step)
        self.undo.enter_context(replaced(pl_module, "training_step", step))

    def _wrap(self, module: pl.LightningModule, step: Callable[..., Any]) -> Callable[..., Any]:
        def training_step(batch: Any, *args: Any, **kwargs: Any) -> Any:
            clean = per_sample_batch_norm(module) if self.batch_norm == "per_sample" else nullcontext()
            with clean, capture(module, self._names) as captured:
                output = step(batch, *args, **kwargs)
            if output is None:  # Lightning's way to skip a batch
                return None
            extra = self.weight * self._loss(module, captured, self.targets(batch))
            if isinstance(output, Tensor):
                return output + extra
            return {**output, "loss": output["loss"] + extra}

        return training_step

    def _loss(self, module: pl.LightningModule, captured: Captured, targets: Tensor) -> Tensor:
        logits, options = captured.logits, self.options
        if logits is None:
            raise RuntimeError(
                f"training_step of {type(module).__name__} never called self(...), "
                "so there are no logits for the margin loss"
            )
        missing = [name for name in self._names if name not in captured.layers]
        if missing:
            raise RuntimeError(f"the forward pass did not run {', '.join(missing)}: choose other layers")
        same = [n for n in self._names if n != OUTPUT and captured.layers[n] is logits]
        if same:
            raise RuntimeError(
                f"{same[0]} gives the logits, so it is no hidden layer of {type(module).__name__}: "
                "name the hidden layers, or give the network an attribute layer_names"
            )
        margins = linearised_margins(
            logits,
            targets,
            {name: captured.layers[name] for name in self._names},
            last_layer=last_linear(module).weight if options["candidates"] == "distance" else None,
            sampled=self._sampled(module, logits, targets),
            batched=self.batched,
            **distance_part(options),
        )
        per_layer = layer_losses(margins, **options)
        if _is_logging_step(module):
            means = zip(self._names, per_layer.detach().mean(0), strict=True)
            signs = telemetry(margins, logits, self._names, **options)
            values = {f"margin/loss/{name}": value for name, value in means}
            values |= {f"margin/{key}": value for key, value in signs.items()}
            module.log_dict(values, on_step=True, on_epoch=False, sync_dist=True)
        return sample_losses(per_layer, options["layer_reduction"]).mean()

    def _sampled(self, module: pl.LightningModule, logits: Tensor, targets: Tensor) -> Tensor | None:
        if self.options["candidates"] != "sampled":
            return None
        trainer = module.trainer
        generator = torch.Generator().manual_seed(derive_seed(self.seed, f"classes/{trainer.global_step}"))
        share = Share(trainer.global_rank, trainer.world_size)
        return sampled_classes(targets, logits.shape[1], sample_size(self.options), generator, share)


def last_linear(module: nn.Module) -> nn.Linear:
    """The last linear layer of a network, whose weight rows belong to the classes."""
    linear = [m for m in module.modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise ValueError(
            f"candidates='distance' needs a linear last layer, and {type(module).__name__} has none"
        )
    return linear[-1]


def _is_logging_step(module: pl.LightningModule) -> bool:
    # Logging costs more than the rest of this callback's Python, so it only runs when it is written.
    trainer = module.trainer
    every = getattr(trainer, "log_every_n_steps", 0)
    return bool(trainer.loggers) and every > 0 and (trainer.global_step + 1) % every == 0
