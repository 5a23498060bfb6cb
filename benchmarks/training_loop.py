"""Steps per second of a run, with all that it does while it trains, in those of a loop written by hand.

The loop trains the same thing: the same weights to begin with, the same batches, optimiser and loss,
validation and checkpoint at the same steps. Both end with the same weights, bit for bit, or there is no row.
"""

import copy
import io
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.compose import configured
from benchmarks.harness import Measured, ratio
from lmsweep.data import Dataset, Split
from lmsweep.margin import margin_loss
from lmsweep.margin.capture import capture
from lmsweep.seeds import derive_seed
from lmsweep.training.build import build_margin, build_module
from lmsweep.training.checkpoint import RunCheckpoint
from lmsweep.training.fit import fit
from lmsweep.training.run import Job, prepare_run

COMMON = ("trainer.accelerator=cpu", "optimizer.lr=0.001", "trainer.log_every=50")
MNIST = ("model=mnist_cnn", "trainer.batch_size=128")
# Steps and steps between validations, then rounds; a round is long enough to drown the start of Lightning.
ROWS = {
    "digits": (("method=xent",), 200, 50, 13),
    "digits, margin": (("method=margin_l2_all",), 100, 50, 5),
    "mnist": ((*MNIST, "method=xent"), 30, 30, 4),
    "mnist, margin": ((*MNIST, "method=margin_l2_all"), 4, 4, 3),
}


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    for name, (overrides, steps, every, rounds) in ROWS.items():
        row = f"training_loop/{name}"
        if row in rows:
            lengths = (f"trainer.max_steps={steps}", f"trainer.val_every={every}")
            job = _job(name, *COMMON, *lengths, *overrides)
            ours, theirs = _in_turn(job, rounds)
            note = f"{steps / min(ours):.0f} steps per second, {1000 * min(ours) / steps:.2f} ms each"
            yield ratio(row, theirs, ours, note)


def _in_turn(job: Job, rounds: int) -> tuple[list[float], list[float]]:
    times: tuple[list[float], list[float]] = ([], [])
    ways = (trained, by_hand)
    for number in range(-1, rounds):
        weights = {}
        for way in ways[:: -1 if number % 2 else 1]:
            own = copy.deepcopy(job)  # not timed: both get a network that is ready
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                weights[way] = way(own, Path(folder))
                if number >= 0:
                    times[ways.index(way)].append(time.perf_counter() - started)
        if not all(torch.equal(a, b) for a, b in zip(weights[trained], weights[by_hand], strict=True)):
            raise RuntimeError("the run and the loop by hand did not train the same network")
    return times


def trained(job: Job, folder: Path) -> list[Tensor]:
    """Our run: Lightning, its callbacks and records, checkpoints."""
    keeper = RunCheckpoint(folder / "checkpoint.ckpt", len(job.data.val))
    with redirect_stderr(io.StringIO()):  # progress, which belongs to the work and not to our table
        fit(job, folder, None, keeper)
    return [p.detach() for p in job.module.parameters()]


def by_hand(job: Job, folder: Path) -> list[Tensor]:
    """What one would write without us."""
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
            buffer = io.BytesIO()
            state = {
                "best": best_weights,
                "weights": network.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, buffer)
            (folder / "checkpoint.ckpt").write_bytes(buffer.getvalue())
    # As the run does: the weights with the best validation accuracy.
    return [best_weights[name] for name, _ in network.named_parameters()]


def _loss(job: Job, x: Tensor, y: Tensor) -> Tensor:
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
def _validate(job: Job) -> int:
    network, val = job.module.network.eval(), job.data.val
    size, correct = 250, 0
    for start in range(0, len(val), size):
        logits = network(_pixels(val.x[start : start + size]))
        correct += int((logits.argmax(1) == val.y[start : start + size]).sum())
    network.train()
    return correct


def _pixels(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _job(name: str, *overrides: str) -> Job:
    """A run that is ready to train; MNIST's images are random ones, because only their shape counts here."""
    config = configured(*overrides, "data=digits")
    if not name.startswith("mnist"):
        return prepare_run(config)
    torch.manual_seed(0)
    data = Dataset(_images(6000), _images(500), _images(100), 10)
    module = build_module(config, data)
    return Job(config, data, module, build_margin(config, module), None)


def _images(count: int) -> Split:
    return Split(torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8), torch.randint(10, (count,)))
