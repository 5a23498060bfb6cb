"""Is the audit's verdict right? `python -m benchmarks.audit_calibration` trains networks, audits and counts.

Networks are cells (a way to train, or a trick known to mask gradients) times seeds, on digits and a few on
MNIST. Cells are split once, at random: limits are chosen on one half, and the confusion matrix is of the
other half. The truth about a network takes two measurements that the audit does not make. IFGSM claims too
much when it leaves over 5 points more accuracy than an ensemble with more than twice the audit's budget.
Gradients are masked when, besides, a trick hides them, or the same IFGSM leaves over 5 points less with
gradients that nothing hides: in float64, the logits scaled down until softmax does not saturate. Each
network is a line of outputs/bench/audit_calibration.jsonl, so an interrupted calibration goes on.
"""

import copy
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
import torch.nn.functional as F
from scipy.stats import binomtest
from torch import Tensor, nn

from lmsweep.attacks import Ensemble, attack_curve, ifgsm, pgd
from lmsweep.attacks.measures.masking import (
    OF_MASKING,
    OF_THE_STRONGEST,
    Evidence,
    Thresholds,
    Verdict,
    judge,
    measure,
)
from lmsweep.attacks.trajectory import logit_margin
from lmsweep.config.hydra import composed
from lmsweep.data import digits, mnist
from lmsweep.files import write_atomically
from lmsweep.margin import margin_loss
from lmsweep.models import ConvNet

EPSILONS, SAMPLES, SEEDS = (0.1,), 100, 3
TRUTH = Ensemble(epsilons=EPSILONS, apgd_steps=100, targets=5, minimal_steps=100, queries=1000)
TOO_MUCH = 0.05
LEAD = 8.0  # by which the right logit may lead in the median, where IFGSM is to see every gradient
VERDICTS: tuple[Verdict, ...] = ("consistent", "attack too weak to say", "gradients masked")
Model = Callable[[nn.Module], nn.Module]


class Trick(nn.Module):
    """A network behind something that hides its gradient."""

    def __init__(
        self, network: nn.Module, *, scale: float = 1.0, levels: int = 0, noise: float = 0.0
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


def train(make: Callable[[], nn.Module], x: Tensor, y: Tensor, seed: int, **how: Any) -> nn.Module:
    """Train by cross-entropy, a margin at the input, or on examples of PGD or TRADES."""
    torch.manual_seed(seed)
    network = make()
    steps, rate = how.pop("steps", 300), how.pop("rate", 0.003)
    pgd_epsilon, trades, margin = how.pop("pgd", 0.0), how.pop("trades", 0.0), how
    optimizer = torch.optim.Adam(network.parameters(), rate)
    for step in range(steps):
        rows = torch.randint(0, len(x), (64,))
        images, labels = x[rows], y[rows]
        if pgd_epsilon and not trades:
            images = pgd(network, images, labels, epsilon=pgd_epsilon, steps=5, seed=step)
        images = images.clone().requires_grad_(bool(margin))
        logits = network(images)
        xent = F.cross_entropy(logits, labels)
        loss = margin_loss(logits, labels, [images], **margin) if margin else xent
        if trades:
            # Near the image, where the answers differ most; the prediction stands in for the label.
            moved = pgd(network, images, logits.argmax(1), epsilon=pgd_epsilon, steps=5, seed=step)
            soft = logits.softmax(1)
            loss = loss + trades * F.kl_div(network(moved).log_softmax(1), soft, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval().requires_grad_(False)


def cells() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """By name: the data, how the network is trained, and the trick it hides behind."""
    inf = float("inf")
    first, exact = {"exact": False}, {"exact": True}
    ways: dict[str, dict[str, Any]] = {
        "xent, 150 steps": {"steps": 150},
        "xent, 500 steps": {"steps": 500},
        "xent, 1000 steps": {"steps": 1000},
        "pgd 0.1": {"pgd": 0.1},
        "pgd 0.2": {"pgd": 0.2, "steps": 400},
        "trades 0.1": {"pgd": 0.1, "trades": 6.0},
        "linf 0.1, first order": {"norm": inf, "gamma": 0.1, **first},
        "linf 0.5, first order": {"norm": inf, "gamma": 0.5, **first},
        "linf 2, first order": {"norm": inf, "gamma": 2.0, "steps": 400, **first},
        "l2 0.5, first order": {"norm": 2, "gamma": 0.5, **first},
        "l2 4, first order": {"norm": 2, "gamma": 4.0, "steps": 400, **first},
        "l1 4, first order": {"norm": 1, "gamma": 4.0, **first},
        "linf 0.1, exact": {"norm": inf, "gamma": 0.1, **exact},
        "l2 0.5, exact": {"norm": 2, "gamma": 0.5, **exact},
    }
    found: dict[str, tuple[str, dict[str, Any], dict[str, Any]]]
    found = {f"digits, {name}": ("digits", how, {}) for name, how in ways.items()}
    tricks: dict[str, dict[str, Any]] = {
        "logits x 100": {"scale": 100.0},
        "logits x 10000": {"scale": 1e4},
        "temperature 0.1": {"scale": 10.0},
        "8 levels": {"levels": 8},
        "2 levels": {"levels": 2},
        "noise 0.1": {"noise": 0.1},
        "noise 0.02": {"noise": 0.02},
    }
    found |= {f"digits, {name}": ("digits", {}, trick) for name, trick in tricks.items()}
    for name in ("xent, 500 steps", "pgd 0.2", "linf 2, first order"):
        found[f"MNIST, {name}"] = ("mnist", {**ways[name], "rate": 0.001}, {})
    found["MNIST, logits x 10000"] = ("mnist", {}, {"scale": 1e4})
    return found


def make_network(data: str) -> nn.Module:
    """The network of a data set."""
    if data == "mnist":
        shape = {"channels": [32, 64], "dense": [512, 512], "kernel_size": 5, "pool": [2, 2]}
        return ConvNet((1, 28, 28), 10, width=0.25, **shape)  # type: ignore[arg-type]
    return ConvNet((1, 8, 8), 10, channels=[8, 16], dense=[64], kernel_size=3, pool=[2, 2])


def examined(model: nn.Module, images: Tensor, labels: Tensor, seed: int) -> dict[str, Any]:
    """What the audit sees, and what a stronger ensemble leaves."""
    audit = composed("audit", ["runs=[none]"])
    quick = {key: audit["attack"][key] for key in ("apgd_steps", "targets", "minimal_steps", "queries")}
    torch.manual_seed(seed)
    evidence = measure(
        model,
        [(images, labels)],
        epsilons=EPSILONS,
        alpha=audit["alpha"],
        unbounded_alpha=audit["unbounded_alpha"],
        attack=Ensemble(epsilons=EPSILONS, **quick),
    )
    worst = attack_curve(model, [(images, labels)], TRUTH, seed=1).accuracy
    return {"evidence": evidence.to_dict(), "ensemble": worst}


@torch.no_grad()
def unhidden(model: Trick, images: Tensor, labels: Tensor, seed: int) -> list[float]:
    """The accuracy under IFGSM whose gradients are in plain sight, without the trick."""
    plain, x = copy.deepcopy(model.network).double(), images.double()
    lead = float(-logit_margin(plain(x), labels).median())
    visible = Trick(plain, scale=min(1.0, LEAD / lead))
    alpha = composed("audit", ["runs=[none]"])["alpha"]
    torch.manual_seed(seed)
    found = [ifgsm(visible, x, labels, epsilon=epsilon, alpha=alpha).float() for epsilon in EPSILONS]
    return [float((model(x).argmax(1) == labels).double().mean()) for x in found]


def trained(data: str, how: Mapping[str, Any], seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, and the images and labels that it is judged on."""
    source = digits.load() if data == "digits" else mnist.load(os.environ.get("LMSWEEP_DATA", "data"))
    pool, test = (
        (part.x.float() / (255 if part.x.dtype == torch.uint8 else 1), part.y)
        for part in (source.pool, source.test)
    )
    return train(partial(make_network, data), *pool, seed, **how), test[0][:SAMPLES], test[1][:SAMPLES]


def truth(line: Mapping[str, Any]) -> Verdict:
    """What the audit should say."""
    claimed = line["evidence"]["curves"]["ifgsm"]
    if max(a - b for a, b in zip(claimed, line["ensemble"], strict=True)) <= TOO_MUCH:
        return "consistent"
    if cells()[line["cell"]][2]:
        return "gradients masked"
    hidden = max(a - b for a, b in zip(claimed, line["unhidden"], strict=True))
    return "gradients masked" if hidden > TOO_MUCH else "attack too weak to say"


def verdict(line: Mapping[str, Any], thresholds: Thresholds) -> Verdict:
    """What the audit says."""
    return judge(Evidence(**line["evidence"]), thresholds)[0]


def right(lines: list[dict[str, Any]], thresholds: Thresholds) -> int:
    """How many verdicts are right."""
    return sum(verdict(line, thresholds) == truth(line) for line in lines)


def chosen(lines: list[dict[str, Any]], thresholds: Thresholds) -> Thresholds:
    """The limits with most right verdicts; of equally good ones those nearest to the limits before."""
    for name in dict.fromkeys(("gap", *OF_MASKING, *OF_THE_STRONGEST)):
        before = getattr(thresholds, name)
        tried = sorted({before, *(k / 100 for k in range(2, 100, 2))}, key=lambda value: abs(value - before))
        counts = [right(lines, Thresholds(**{**asdict(thresholds), name: value})) for value in tried]
        best = tried[counts.index(max(counts))]
        thresholds = Thresholds(**{**asdict(thresholds), name: best})
    return thresholds


def share(count: int, total: int) -> str:
    """A share and its interval."""
    low, high = binomtest(count, total).proportion_ci(method="wilson")
    return f"{count} of {total}: {count / total:.1%} [{low:.1%}, {high:.1%}]"


def report(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Chosen limits, the confusion matrix of the half that did not choose, and flips between seeds."""
    names = sorted(cells())
    random.Random(0).shuffle(names)  # noqa: S311 - no secret
    choosing = set(names[: len(names) // 2])
    first = [line for line in lines if line["cell"] in choosing]
    second = [line for line in lines if line["cell"] not in choosing]
    before = Thresholds(**composed("audit", ["runs=[none]"])["thresholds"])
    limits = chosen(first, before)
    yield f"{len(first)} networks chose; limits before {asdict(before)}, chosen {asdict(limits)}"
    yield f"right on those {right(first, limits)}, before {right(first, before)}"
    for word in VERDICTS:
        words = [verdict(line, limits) for line in second if truth(line) == word]
        yield f"truth {word}: " + ", ".join(f"{one} {words.count(one)}" for one in VERDICTS)
    yield f"right {share(right(second, limits), len(second))}"
    believed = sum((verdict(line, limits) == VERDICTS[0]) == (truth(line) == VERDICTS[0]) for line in second)
    yield f"right about whether IFGSM claims too much {share(believed, len(second))}"
    for name in names:
        cell = [line for line in lines if line["cell"] == name]
        found, truths = [verdict(line, limits) for line in cell], [truth(line) for line in cell]
        if len({*found, *truths}) > 1:
            gaps = [round(Evidence(**line["evidence"]).gap[0], 3) for line in cell]
            half = "chose" if name in choosing else "reported"
            yield f"{name} ({half}): verdicts {found}, truth {truths}, gaps {gaps}"


def main() -> None:
    """Measure what is missing, then report."""
    torch.set_num_threads(1)
    path = Path(os.environ.get("LMSWEEP_OUTPUTS", "outputs")) / "bench" / "audit_calibration.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["cell"], line["seed"]): line for line in lines}
    wanted = [(name, seed) for seed in range(SEEDS) for name in cells()]
    # MNIST last, and two seeds of it, because one of its networks costs as much as ten others.
    for name, seed in sorted(wanted, key=lambda one: one[0].startswith("MNIST")):
        data, how, trick = cells()[name]
        line = done.get((name, seed), {})
        if "unhidden" in line or (data == "mnist" and seed >= 2):
            continue
        network, images, labels = trained(data, how, seed)
        model = Trick(network, **trick)
        line = line or {"cell": name, "seed": seed, **examined(model, images, labels, seed)}
        done[name, seed] = {**line, "unhidden": unhidden(model, images, labels, seed)}
        write_atomically(path, "".join(json.dumps(one) + "\n" for one in done.values()))
        print(name, seed, truth(done[name, seed]), flush=True)
    print(*report([*done.values()]), sep="\n")


if __name__ == "__main__":
    main()
