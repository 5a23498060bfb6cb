"""The margin loss as a Lightning callback: the module it is added to knows nothing of margins."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, Literal

import pytorch_lightning as pl
from torch import Tensor, nn

from lmsweep.margin.attributes import replaced
from lmsweep.margin.batch_norm import per_sample_batch_norm
from lmsweep.margin.capture import Captured, capture
from lmsweep.margin.distance import linearised_margins
from lmsweep.margin.layers import OUTPUT, compiled_around, resolve_layers
from lmsweep.margin.loss import layer_losses, sample_losses, telemetry
from lmsweep.margin.options import check_options


def second_of_batch(batch: Any) -> Tensor:
    """Class indices of a batch that is a pair (inputs, targets), as most data loaders give."""
    targets: Tensor = batch[1]
    return targets


class MarginLoss(pl.Callback):
    """Add the margin loss to whatever `training_step` returns.

    `Trainer(callbacks=[MarginLoss(layers="all", gamma=1.0)])` is all it takes for a LightningModule whose
    `forward` returns logits and whose `training_step` calls `self(x)` (its last call counts).

    The step is wrapped, not the backward pass, so gradient accumulation, loss scaling and DDP treat the
    margin loss like any other part of the loss. Hooks live for one training step only.

    Args:
        layers: a layer set; see `resolve_layers`.
        weight: of the margin loss in the total.
        candidates: choose the `top_k` classes by "score", or by "distance" at the last linear layer.
        batch_norm: "batch" leaves gradients coupled through train-mode batch norm as autograd gives them;
            "per_sample" treats batch statistics as constants while gradients are measured.
        targets: how to find the class indices in a batch.

    The other arguments are those of `margin_loss`.
    """

    def __init__(
        self,
        layers: str | Sequence[str] = "all",
        weight: float = 1.0,
        *,
        norm: float | str = 2.0,
        gamma: float | Sequence[float] = 1.0,
        top_k: int | None = None,
        candidates: Literal["score", "distance"] = "score",
        aggregation: Literal["max", "sum"] = "max",
        epsilon: float = 1e-6,
        clip: float | None = None,
        exact: bool = False,
        score: Literal["logit", "softmax"] = "logit",
        layer_reduction: Literal["sum", "mean"] = "sum",
        layer_weights: Sequence[float] | None = None,
        batch_norm: Literal["batch", "per_sample"] = "batch",
        targets: Callable[[Any], Tensor] = second_of_batch,
    ) -> None:
        check_options(
            weight=weight,
            norm=norm,
            gamma=gamma,
            top_k=top_k,
            candidates=candidates,
            aggregation=aggregation,
            epsilon=epsilon,
            clip=clip,
            score=score,
            layer_reduction=layer_reduction,
            layer_weights=layer_weights,
            batch_norm=batch_norm,
        )
        self.layers = layers
        self.weight = weight
        self.gamma = gamma
        self.top_k = top_k
        self.candidates = candidates
        self.aggregation = aggregation
        self.epsilon = epsilon
        self.clip = clip
        self.layer_reduction = layer_reduction
        self.batch_norm = batch_norm
        self.targets = targets
        # Whether sweeps are batched by vmap: None where that is faster, False where it cannot be (inside
        # torch.compile and where backward passes talk to other processes).
        self.batched: bool | None = None
        self._distance_options: dict[str, Any] = {
            "norm": norm,
            "epsilon": epsilon,
            "exact": exact,
            "score": score,
            "layer_weights": layer_weights,
        }
        self._names: list[str] = []
        self._last_linear: nn.Linear | None = None
        self._wrapped = ExitStack()

    def check(self, module: nn.Module) -> list[str]:
        """Return the names of the layers chosen in `module`; ValueError when the choice does not fit it."""
        names = resolve_layers(module, self.layers)
        for key, values in (
            ("gamma", self.gamma),
            ("layer_weights", self._distance_options["layer_weights"]),
        ):
            if isinstance(values, Sequence) and len(values) != len(names):
                raise ValueError(f"{key} has {len(values)} values for the layers {', '.join(names)}")
        if self.candidates == "distance":
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
        self._last_linear = last_linear(pl_module) if self.candidates == "distance" else None
        step = self._wrap(pl_module, pl_module.training_step)
        self._wrapped.enter_context(replaced(pl_module, "training_step", step))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the module as it was."""
        self._wrapped.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave the module as it was."""
        self.teardown(trainer, pl_module, "fit")

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
        logits = captured.logits
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
        last = self._last_linear.weight if self._last_linear is not None else None
        margins = linearised_margins(
            logits,
            targets,
            {name: captured.layers[name] for name in self._names},
            top_k=self.top_k,
            last_layer=last,
            batched=self.batched,
            **self._distance_options,
        )
        per_layer = layer_losses(margins, gamma=self.gamma, aggregation=self.aggregation, clip=self.clip)
        if _is_logging_step(module):
            values = {
                f"margin/loss/{name}": value
                for name, value in zip(self._names, per_layer.detach().mean(0), strict=True)
            }
            signs = telemetry(
                margins, logits, self._names, gamma=self.gamma, epsilon=self.epsilon, clip=self.clip
            )
            values.update({f"margin/{key}": value for key, value in signs.items()})
            module.log_dict(values, on_step=True, on_epoch=False, sync_dist=True)
        return sample_losses(per_layer, self.layer_reduction).mean()


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
