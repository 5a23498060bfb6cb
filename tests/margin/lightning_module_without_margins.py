"""A LightningModule that knows nothing of margins, and training it with and without Lightning.

Run as a script, with a file and a number of processes as arguments, it trains under DDP and saves the
parameters to the file.
"""

import sys

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lmsweep.margin import MarginLoss, margin_loss

STEPS, BATCH = 12, 16
OPTIONS = {"norm": 2, "gamma": 1.0, "clip": 2.0, "aggregation": "sum"}


class ModuleWithoutMargins(pl.LightningModule):
    def __init__(self, returns: str = "loss") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16, 8), nn.Tanh())
        self.last = nn.Linear(8, 4)
        self.returns = returns

    def forward(self, x):
        return self.last(self.head(self.conv(x)))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        if self.returns == "dict":
            return {"loss": loss, "note": 1}
        return None if self.returns == "none" else loss

    def validation_step(self, batch, batch_idx):
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in self.modules())
        self.log("val", F.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(STEPS * BATCH, 1, 6, 6, generator=generator)
    return TensorDataset(x, torch.randint(0, 4, (len(x),), generator=generator))


def loader(batch: int = BATCH) -> DataLoader:
    return DataLoader(data(), batch_size=batch)


def parameters(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


SCALE = 256.0  # of the loss in float16


def by_hand(dtype: torch.dtype = torch.float32, **options) -> torch.Tensor:
    """The same training as a plain loop with the pure function; other dtypes by autocast."""
    net = ModuleWithoutMargins()
    optimizer = net.configure_optimizers()
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled=dtype == torch.float16)
    for x, y in loader():
        x = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            conv = net.conv(x)
            head = net.head(conv)
            logits = net.last(head)
            extra = margin_loss(logits, y, [x, conv, head, logits], **OPTIONS, **options)
            loss = F.cross_entropy(logits, y) + 0.5 * extra
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return parameters(net)


def trainer(**options) -> pl.Trainer:
    defaults = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "callbacks": [MarginLoss("everything", 0.5, **OPTIONS)],
    }
    return pl.Trainer(**{**defaults, **options})


class Distributed(ModuleWithoutMargins):
    """Each process takes its share of every batch; Lightning's own sampler would shuffle."""

    def train_dataloader(self):
        world = self.trainer.world_size
        share = list(range(self.global_rank, STEPS * BATCH, world))
        return DataLoader(data(), batch_size=BATCH // world, sampler=share)


if __name__ == "__main__":
    out, devices = sys.argv[1], int(sys.argv[2])
    module = Distributed()
    fit = trainer(devices=devices, strategy="ddp", use_distributed_sampler=False)
    fit.fit(module)
    if fit.is_global_zero:
        torch.save(parameters(module), out)
