"""The networks of the audit's calibration: cells of trainings and tricks, on digits and MNIST.

A cell is a way to train, or a trick known to hide gradients, and its seeds are networks. Limits of the audit
are chosen with `CHOOSING`, and reported with `FRESH`: other ways, strengths and seeds. Weights are kept, so a
network is trained once.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.attacks import pgd
from lmsweep.data import digits, mnist
from lmsweep.margin import margin_loss
from lmsweep.methods.adversarial import MMA, Trades
from lmsweep.methods.losses import GeneralisedCrossEntropy
from lmsweep.methods.method import Method, Step
from lmsweep.methods.smoothness import Jacobian, Parseval
from lmsweep.models import ConvNet

INF = float("inf")


@dataclass(frozen=True)
class Way:
    """How a network is trained: cross-entropy, unless there is a margin, PGD's epsilon or a method."""

    margin: Mapping[str, Any] = field(default_factory=dict)
    all_layers: bool = False
    pgd: float = 0.0
    method: Method = field(default_factory=Method)
    xent: float = 1.0
    steps: int = 300
    width: float = 1.0


@dataclass(frozen=True)
class Cell:
    """Networks that differ by their seed."""

    data: str
    way: Way
    trick: Mapping[str, float]
    seeds: tuple[int, ...]


class Trick(nn.Module):
    """A network behind something that hides its gradient."""

    def __init__(
        self, network: nn.Module, *, scale: float = 1.0, levels: float = 0, noise: float = 0.0
    ) -> None:
        super().__init__()
        self.network, self.scale, self.levels, self.noise = network, scale, levels, noise

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        if self.levels:
            x = torch.round(x * self.levels) / self.levels
        if self.noise:
            x = x + self.noise * torch.randn_like(x)
        logits: Tensor = self.scale * self.network(x)
        return logits


def first(norm: float, gamma: float, **more: Any) -> Way:
    """A first-order margin at the input, as in the paper."""
    return Way(margin={"norm": norm, "gamma": gamma, "exact": False}, **more)


def exact(norm: float, gamma: float) -> Way:
    """A margin with exact gradients."""
    return Way(margin={"norm": norm, "gamma": gamma, "exact": True})


def trades(epsilon: float, beta: float) -> Way:
    """TRADES with five steps."""
    return Way(method=Trades(beta=beta, epsilon=epsilon, alpha=epsilon / 2, steps=5))


def mma(epsilon: float) -> Way:
    """MMA with five steps; a third of the loss is clean."""
    return Way(method=MMA(weight=0.667, epsilon=epsilon, alpha=epsilon / 2, steps=5), xent=0.333)


def cells(
    ways: Mapping[str, Way], tricks: Mapping[str, Mapping[str, float]], data: str, seeds: tuple[int, ...]
) -> dict[str, Cell]:
    """Cells by name; behind a trick is a network of cross-entropy."""
    found = {f"{data}, {name}": Cell(data, way, {}, seeds) for name, way in ways.items()}
    return found | {f"{data}, {name}": Cell(data, Way(), trick, seeds) for name, trick in tricks.items()}


WAYS = {
    "xent, 150 steps": Way(steps=150),
    "xent, 500 steps": Way(steps=500),
    "xent, 1000 steps": Way(steps=1000),
    "pgd 0.1": Way(pgd=0.1),
    "pgd 0.2": Way(pgd=0.2, steps=400),
    "trades 0.1": trades(0.1, 6.0),
    "linf 0.1, first order": first(INF, 0.1),
    "linf 0.5, first order": first(INF, 0.5),
    "linf 2, first order": first(INF, 2.0, steps=400),
    "l2 0.5, first order": first(2, 0.5),
    "l2 4, first order": first(2, 4.0, steps=400),
    "l1 4, first order": first(1, 4.0),
    "linf 0.1, exact": exact(INF, 0.1),
    "l2 0.5, exact": exact(2, 0.5),
}
TRICKS: dict[str, dict[str, float]] = {
    "logits x 100": {"scale": 100.0},
    "logits x 10000": {"scale": 1e4},
    "temperature 0.1": {"scale": 10.0},
    "8 levels": {"levels": 8},
    "2 levels": {"levels": 2},
    "noise 0.1": {"noise": 0.1},
    "noise 0.02": {"noise": 0.02},
}
MNIST_WAYS = {name: WAYS[name] for name in ("xent, 500 steps", "pgd 0.2", "linf 2, first order")}
CHOOSING = {
    **cells(WAYS, TRICKS, "digits", (0, 1, 2)),
    **cells(MNIST_WAYS, {"logits x 10000": TRICKS["logits x 10000"]}, "MNIST", (0, 1)),
}
FRESH = {
    **cells(
        {
            "xent, twice as wide": Way(steps=250, width=2.0),
            "pgd 0.15": Way(pgd=0.15, steps=350),
            "trades 0.15": trades(0.15, 3.0),
            "mma 0.15": mma(0.15),
            "linf 1, first order": first(INF, 1.0),
            "linf 4, first order": first(INF, 4.0, steps=500),
            "l2 8, first order": first(2, 8.0, steps=600),
            "linf 1, all layers, first order": first(INF, 1.0, all_layers=True),
            "l2 3, all layers, first order": first(2, 3.0, all_layers=True),
            "linf 0.2, exact": exact(INF, 0.2),
            "gce 0.7": Way(method=GeneralisedCrossEntropy(q=0.7), xent=0.0),
            "jacobian 0.1": Way(method=Jacobian(weight=0.1, projections=1)),
            "parseval": Way(method=Parseval(beta=0.01, output=False)),
        },
        {
            "logits x 1000": {"scale": 1000.0},
            "temperature 0.2": {"scale": 5.0},
            "4 levels": {"levels": 4},
            "noise 0.05": {"noise": 0.05},
        },
        "digits",
        (10, 11),
    ),
    **cells(
        {"xent, 250 steps": Way(steps=250)},
        {"logits x 300": {"scale": 300.0}},
        "MNIST",
        (10, 11),
    ),
}


def make_network(data: str, width: float) -> ConvNet:
    """The network of a data set."""
    if data == "MNIST":
        shape = {"channels": [32, 64], "dense": [512, 512], "kernel_size": 5, "pool": [2, 2]}
        return ConvNet((1, 28, 28), 10, width=0.25 * width, **shape)  # type: ignore[arg-type]
    shape = {"channels": [8, 16], "dense": [64], "kernel_size": 3, "pool": [2, 2]}
    return ConvNet((1, 8, 8), 10, width=width, **shape)  # type: ignore[arg-type]


def train(network: ConvNet, way: Way, x: Tensor, y: Tensor, seed: int, rate: float) -> nn.Module:
    """Train as the cell says."""
    passed: dict[str, Tensor] = {}
    for name in network.layer_names:
        hook = lambda _, __, output, name=name: passed.update({name: output})  # noqa: E731
        network.get_submodule(name).register_forward_hook(hook)
    way.method.prepare(network)
    optimizer = torch.optim.Adam(network.parameters(), rate)
    for step in range(way.steps):
        rows = torch.randint(0, len(x), (64,))
        images, labels = x[rows], y[rows]
        if way.pgd:
            images = pgd(network, images, labels, epsilon=way.pgd, steps=5, seed=step)
        images = images.clone().requires_grad_(bool(way.margin) or way.method.input_gradient)
        logits = network(images)
        if way.margin:
            layers = [images, *passed.values()] if way.all_layers else [images]
            loss = margin_loss(logits, labels, layers, **way.margin)
        else:
            loss = way.xent * F.cross_entropy(logits, labels)
        begun = Step(network, images, labels, logits, network, seed=1000 * seed + step)
        further = (way.method.criterion(logits, labels), way.method.term(begun))
        loss = loss + sum(one for one in further if one is not None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        way.method.after_update(network)
    return network


@cache
def images(data: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images in [0, 1] and labels, to train on and to test on."""
    source = digits.load() if data == "digits" else mnist.load(os.environ.get("LMSWEEP_DATA", "data"))
    pool, test = (
        (part.x.float() / (255 if part.x.dtype == torch.uint8 else 1), part.y)
        for part in (source.pool, source.test)
    )
    return pool, test


def trained(name: str, cell: Cell, seed: int, folder: Path) -> Trick:
    """The network of a cell and a seed, from `folder` when it has been trained before."""
    torch.manual_seed(seed)
    network = make_network(cell.data, cell.way.width)
    path = folder / f"{re.sub('[^a-zA-Z0-9.]+', '-', name)}-{seed}.pt"
    if not path.exists():
        rate = 0.001 if cell.data == "MNIST" else 0.003
        done = train(network, cell.way, *images(cell.data)[0], seed, rate)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".partial")
        torch.save(done.state_dict(), temporary)
        temporary.replace(path)
    fresh = make_network(cell.data, cell.way.width)
    fresh.load_state_dict(torch.load(path, weights_only=True))
    return Trick(fresh.eval().requires_grad_(False), **cell.trick)
