"""The LightningModule around any network that maps images to logits, and the criteria it is trained on."""

from collections.abc import Callable
from typing import Any, cast

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lmsweep.data.batches import Batch


class Classifier(pl.LightningModule):
    """Trains a network on a criterion. What else goes into the loss, callbacks add."""

    def __init__(
        self,
        network: nn.Module,
        *,
        criterion: str,
        xent_weight: float,
        optimizer: Callable[[Any], Optimizer],
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.criterion = criterion
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
        """The criterion on one batch; on the auxiliary head too, by the network's `aux_weight`."""
        x, y = batch
        output = self(x)
        logits, *auxiliary = (output,) if isinstance(output, Tensor) else output
        loss = criterion_loss(logits, y, self.criterion, self.xent_weight)
        for head in auxiliary:
            weight = cast(float, self.network.aux_weight)
            loss = loss + weight * criterion_loss(head, y, self.criterion, self.xent_weight)
        return loss

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


def hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """Multi-class hinge: how far the best other class comes within 1 of the target's logit."""
    true = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    other = logits.scatter(1, targets.unsqueeze(1), float("-inf")).amax(1)
    return (1 - true + other).clamp_min(0).mean()


def criterion_loss(logits: Tensor, targets: Tensor, criterion: str, xent_weight: float) -> Tensor:
    """The criterion of a method: weighted cross-entropy, plus the hinge when asked for."""
    loss = xent_weight * F.cross_entropy(logits, targets)
    return loss + hinge(logits, targets) if criterion == "hinge" else loss
