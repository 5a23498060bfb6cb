"""Steps per second of a run, with all that it does while it trains, in those of a loop written by hand.

The loop trains the same thing: the same weights to begin with, the same batches, optimiser and loss,
validation and checkpoint at the same steps. Both end with the same weights, bit for bit, or there is no row.
They take turns after every step, so that whatever else the machine does slows both.
"""

import copy
import dataclasses
import io
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.compose import configured
from benchmarks.harness import Measured, ratio
from lmsweep.data import Dataset, Split
from lmsweep.margin import margin_loss
from lmsweep.margin.layers import capture
from lmsweep.seeds import derive_seed
from lmsweep.training.build import Parts, build_margin, build_module, prepare_run
from lmsweep.training.checkpoint import JsonLinesLogger, RunCheckpoint
from lmsweep.training.fit import fit

COMMON = ("trainer.accelerator=cpu", "optimizer.lr=0.001", "trainer.log_every=50")
MNIST = ("model=mnist_cnn", "trainer.batch_size=128")
# Overrides, steps between validations, and how many times so many steps; the first ones do not count.
ROWS = {
    "digits": (("method=xent",), 50, 24),
    "digits, margin": (("method=margin",), 50, 7),
    "mnist": ((*MNIST, "method=xent"), 40, 5),
    "mnist, margin": ((*MNIST, "method=margin"), 4, 4),
}


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    for name, (overrides, every, blocks) in ROWS.items():
        row = f"training_loop/{name}"
        if row in rows:
            lengths = (f"trainer.max_steps={every * blocks}", f"trainer.val_every={every}")
            turns = in_turn(_job(name, *COMMON, *lengths, *overrides))
            ours, theirs = _blocks(turns.ours, every), _blocks(turns.theirs, every)
            step = 1000 * sorted(ours)[len(ours) // 2] / every
            yield ratio(row, theirs, ours, f"{1000 / step:.0f} steps per second, {step:.2f} ms each")


def _blocks(seconds: Sequence[float], size: int) -> list[float]:
    """From one validation to the next; without the first block, in which the other way begins."""
    return [sum(seconds[start : start + size]) for start in range(size, len(seconds), size)]


class Turns(pl.Callback):
    """Lets a loop by hand take a step after every step of a run, and measures both."""

    def __init__(self, by_hand: Iterator[object]) -> None:
        self.by_hand = by_hand
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.since = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Our first step begins."""
        self.since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """All since the other's step was ours: batch, step, records, and validation when it was due."""
        now = time.perf_counter()
        self.ours.append(now - self.since)
        next(self.by_hand)
        self.since = time.perf_counter()
        self.theirs.append(self.since - now)


def in_turn(job: Parts) -> Turns:
    """Train twice at the same time; RuntimeError unless both end with the same weights."""
    other = copy.deepcopy(job)
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        turns = Turns(by_hand(other, Path(theirs)))
        keeper = RunCheckpoint(Path(ours, "checkpoint.ckpt"), len(job.data.val))
        with redirect_stderr(io.StringIO()):  # progress, which belongs to the work and not to our table
            lines = JsonLinesLogger(job.config, Path(ours), None)
            fit(dataclasses.replace(job, callbacks=[turns]), None, keeper, lines=lines)
    job.module.load_state_dict(keeper.chosen["best"].weights)
    weights = zip(job.module.network.parameters(), other.module.network.parameters(), strict=True)
    if not all(torch.equal(a, b) for a, b in weights):
        raise RuntimeError("the run and the loop by hand did not train the same network")
    return turns


def by_hand(job: Parts, folder: Path) -> Iterator[None]:
    """What one would write without us; it stops after every step, and ends with the best weights."""
    config, network = job.config, job.module.network
    x, y = job.data.train.x, job.data.train.y
    optimizer = job.module.configure_optimizers()
    best, best_weights, epoch, waiting = -1, {}, 0, torch.empty(0, dtype=torch.long)
    for step in range(1, config.trainer.max_steps + 1):
        if len(waiting) < config.trainer.batch_size:
            generator = torch.Generator().manual_seed(derive_seed(config.seed, f"batches/{epoch}"))
            waiting = torch.cat([waiting, torch.randperm(len(x), generator=generator)])
            epoch += 1
        chosen, waiting = waiting[: config.trainer.batch_size], waiting[config.trainer.batch_size :]
        loss = _loss(job, _pixels(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % config.trainer.val_every == 0:
            correct = _validate(job)
            if correct > best:
                best, best_weights = correct, {k: v.clone() for k, v in network.state_dict().items()}
            state = {
                "best": best_weights,
                "weights": network.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, folder / "checkpoint.ckpt")
        if step == config.trainer.max_steps:
            network.load_state_dict(best_weights)
        yield


def _loss(job: Parts, x: Tensor, y: Tensor) -> Tensor:
    network = job.module.network
    if job.margin is None:
        return F.cross_entropy(network(x), y)
    options = job.config.margin
    names = job.margin.check(job.module)
    with capture(network, names) as captured:
        logits = network(x)
    layers = {name: captured.layers[name] for name in names}
    extra = margin_loss(
        logits,
        y,
        layers,
        norm=options.norm,
        gamma=options.gamma,
        clip=options.clip,
        aggregation=options.aggregation,
    )
    return F.cross_entropy(logits, y) + extra


@torch.no_grad()
def _validate(job: Parts) -> int:
    network, val = job.module.network.eval(), job.data.val
    size, correct = 250, 0
    for start in range(0, len(val), size):
        logits = network(_pixels(val.x[start : start + size]))
        correct += int((logits.argmax(1) == val.y[start : start + size]).sum())
    network.train()
    return correct


def _pixels(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _job(name: str, *overrides: str) -> Parts:
    """A run that is ready to train; MNIST's images are random ones, because only their shape counts here."""
    config = configured(*overrides, "data=digits")
    if not name.startswith("mnist"):
        return prepare_run(config)
    torch.manual_seed(0)
    data = Dataset(_images(6000), _images(500), _images(100), 10)
    module = build_module(config, data)
    return Parts(config, data, module, build_margin(config, module, data.num_classes), None)


def _images(count: int) -> Split:
    return Split(torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8), torch.randint(10, (count,)))
