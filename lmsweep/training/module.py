"""The LightningModule around any network that maps images to logits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lmsweep.data.dataset import Batch
from lmsweep.methods import Method, Step, linear_layers
from lmsweep.seeds import Share, derive_seed


class Classifier(pl.LightningModule):
    """Trains a network by a method. What else goes into the loss, callbacks add."""

    def __init__(
        self,
        network: nn.Module,
        *,
        xent_weight: float,
        optimizer: Callable[[Any], Optimizer],
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
        method: Method | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.network = network
        self.method = method or Method()
        self.seed = seed
        self.xent_weight = xent_weight
        self.optimizer_factory = optimizer
        self.schedule_factory = schedule
        self.channels_last = False  # the memory format of images
        self.compiled = False  # whether layers were handed to torch.compile

    def __setattr__(self, name: str, value: Any) -> None:
        """Skip torch's 3 us for `_current_fx_name`, which Lightning sets some 45 times per step."""
        if name == "_current_fx_name":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Any:
        """Logits of a batch of images, or in training (logits, logits of an auxiliary head)."""
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.network(x)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of one batch; auxiliary heads count by the network's `aux_weight`."""
        x, y = batch
        method = self.method
        if method.input_gradient:
            x = x.detach().requires_grad_()
        state: tuple[Tensor, Tensor | None] | None = None
        if method.further_passes:
            state = torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else None
        features: list[Tensor] = []  # what goes into the last linear layer
        hook: AbstractContextManager[object] = nullcontext()
        if method.features:
            last = linear_layers(self.network)[-1]
            hook = last.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
        with hook:
            # A clone, because a network that works in place must not do so on a leaf.
            output = self(x.clone() if method.input_gradient else x)
        logits, *auxiliary = (output,) if isinstance(output, Tensor) else output
        loss = self._criterion(logits, y)
        for head in auxiliary:
            loss = loss + cast(float, self.network.aux_weight) * self._criterion(head, y)
        if not method.has_term:
            return loss
        step = Step(
            self.network,
            x,
            y,
            logits,
            again=partial(self._again, state),
            features=features[-1] if features else None,
            seed=derive_seed(self.seed, f"method/{self.global_step}"),
            share=Share(self.global_rank, self.trainer.world_size),
        )
        term = method.term(step)
        return loss if term is None else loss + term

    def _criterion(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = self.xent_weight * F.cross_entropy(logits, targets)
        more = self.method.criterion(logits, targets)
        return loss if more is None else loss + more

    def _again(self, state: tuple[Tensor, Tensor | None] | None, x: Tensor) -> Tensor:
        """The logits of other images, with the random numbers of the pass that began with `state`."""
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            if state is not None:
                torch.set_rng_state(state[0])
                if state[1] is not None:
                    torch.cuda.set_rng_state(state[1], x.device)
            output = self.forward(x)
        return output if isinstance(output, Tensor) else output[0]

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """A step of the optimizer, and what the method does to the weights after it."""
        super().optimizer_step(*args, **kwargs)
        self.method.after_update(self.network)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Accuracy and cross-entropy, averaged over the split by Lightning."""
        x, labels = batch
        # Where validation labels are noisy, the true ones are in a second column.
        y, *clean = labels.unbind(1) if labels.ndim == 2 else (labels,)
        logits = self(x)
        values = {
            "val_accuracy": (logits.argmax(1) == y).float().mean(),
            "val_loss": F.cross_entropy(logits, y),
        }
        if clean:
            values["val_clean_accuracy"] = (logits.argmax(1) == clean[0]).float().mean()
        # Lightning rounds the mean batch size of the processes down; this makes the mean a whole number.
        self.log_dict(values, batch_size=len(y) * self.trainer.world_size, sync_dist=True)

    def configure_optimizers(self) -> Any:
        """The optimiser, and what changes its learning rate after every step."""
        optimizer = self.optimizer_factory(self.parameters())
        if self.schedule_factory is None:
            return optimizer
        schedule = self.schedule_factory(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
