"""Is robustness real, or only the lack of a gradient to follow? Measurements, and a verdict over them.

The checks are those of Athalye et al. (2018, "Obfuscated gradients") and Carlini et al. (2019, "On evaluating
adversarial robustness"), against what IFGSM with cross-entropy claims, because that is what figures show.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from lmsweep.attacks.curve import Batches, attack_curve, transfer_curves
from lmsweep.attacks.fgsm import FGSM
from lmsweep.attacks.ifgsm import IFGSM
from lmsweep.attacks.pgd import PGD
from lmsweep.attacks.search import RandomSearch
from lmsweep.margin.temporary import frozen

Verdict = Literal["consistent", "gradients masked"]


@dataclass(frozen=True)
class Evidence:
    """Accuracies over `epsilons`, and what was seen on the way."""

    epsilons: tuple[float, ...]
    clean: float
    fgsm: list[float]
    ifgsm: list[float]
    ifgsm_margin: list[float]
    pgd: list[float]
    search: list[float]
    transfer: list[float] | None  # None when there was no other network to make examples on
    unbounded: float
    # Shares of clean samples: those whose gradient of cross-entropy is exactly zero, and those with a softmax
    # of exactly 1, which rounds off part of the gradient.
    zero_gradients: float
    saturated: float
    samples: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for results.json."""
        return {**asdict(self), "epsilons": list(self.epsilons)}


@dataclass(frozen=True)
class Thresholds:
    """How far a measurement may be off before it counts; the reasons are in docs/attacks.md."""

    tolerance: float  # by how much an attack that should be weaker may look stronger
    other_loss: float  # by how much the logit margin may beat cross-entropy in the same attack
    more_steps: float  # by how much PGD with restarts may beat IFGSM
    zero_gradients: float
    unbounded: float


def measure(
    model: nn.Module,
    batches: Batches,
    *,
    epsilons: Sequence[float],
    alpha: float,
    pgd_steps: int,
    restarts: int,
    queries: int,
    unbounded_alpha: float,
    seed: int = 0,
    source: nn.Module | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Evidence:
    """Run every attack of the audit on the same samples; `source` is a network to transfer from.

    `tell` hears which attack begins.
    """
    strengths = tuple(sorted(epsilons))
    # The last point of each attack counts: early stop hides that a larger epsilon helps the network, fully so
    # in IFGSM when the epsilons are multiples of alpha.
    ifgsm_attack = IFGSM(epsilons=strengths, alpha=alpha)
    margin_attack = IFGSM(epsilons=strengths, alpha=alpha, loss="margin")
    pgd_attack = PGD(epsilons=strengths, steps=pgd_steps, restarts=restarts)
    tell("FGSM, attack 1 of 7")
    fgsm = attack_curve(model, batches, FGSM(epsilons=strengths), seed=seed, early_stop=False)
    tell("IFGSM on the cross-entropy, attack 2 of 7")
    ifgsm = attack_curve(model, batches, ifgsm_attack, seed=seed, early_stop=False)
    tell("IFGSM on the logit margin, attack 3 of 7")
    margin = attack_curve(model, batches, margin_attack, early_stop=False)
    tell("PGD with restarts, attack 4 of 7")
    pgd = attack_curve(model, batches, pgd_attack, seed=seed)
    tell("search without gradients, attack 5 of 7")
    search = attack_curve(model, batches, RandomSearch(epsilons=strengths, queries=queries), seed=seed)
    # With epsilon 1 every image can be reached, another class's among them.
    tell("IFGSM without bound, attack 6 of 7")
    unbounded = attack_curve(model, batches, IFGSM(epsilons=(1.0,), alpha=unbounded_alpha))
    transfer = None
    if source is not None:
        tell("transfer, attack 7 of 7")
        found = transfer_curves(source, {"target": model}, batches, ifgsm_attack, seed=seed)
        transfer = found["target"].accuracy
    return Evidence(
        epsilons=strengths,
        clean=fgsm.to_dict()["clean_accuracy"],
        fgsm=fgsm.accuracy,
        ifgsm=ifgsm.accuracy,
        ifgsm_margin=margin.accuracy,
        pgd=pgd.accuracy,
        search=search.accuracy,
        transfer=transfer,
        unbounded=unbounded.accuracy[0],
        zero_gradients=fgsm.zero_gradients[0] or 0.0,
        saturated=_saturated(model, batches),
        samples=len(fgsm.clean_correct),
    )


def judge(evidence: Evidence, thresholds: Thresholds) -> tuple[Verdict, list[str]]:
    """The verdict and its reasons; a consistent network gets the checks it passed as reasons."""
    found = _signs_of_masking(evidence, thresholds)
    if found:
        return "gradients masked", found
    passed = [
        f"cross-entropy has a gradient ({evidence.zero_gradients:.1%} of samples have none)",
        "no attack with another loss, with less knowledge or with fewer steps does better than its gradient",
        "a larger epsilon never helps the network",
        f"without a bound IFGSM leaves {evidence.unbounded:.1%} accuracy",
    ]
    if evidence.transfer is None:
        passed.append("transfer was not tested, because no other network was at hand")
    return "consistent", passed


def _signs_of_masking(evidence: Evidence, thresholds: Thresholds) -> list[str]:
    reasons = []
    if evidence.zero_gradients > thresholds.zero_gradients:
        reasons.append(
            f"the gradient of cross-entropy is exactly zero for {evidence.zero_gradients:.1%} of samples"
        )
    # More steps and restarts beat IFGSM honestly too. Against attacks that know less (no gradient, another
    # network's gradient), the best that cross-entropy's own gradient can do is the fair comparison.
    best = [min(pair) for pair in zip(evidence.ifgsm, evidence.pgd, strict=True)]
    comparisons: list[tuple[str, list[float] | None, str, list[float], float]] = [
        ("IFGSM on the logit margin", evidence.ifgsm_margin, "IFGSM", evidence.ifgsm, thresholds.other_loss),
        ("PGD with restarts", evidence.pgd, "IFGSM", evidence.ifgsm, thresholds.more_steps),
        ("a single step (FGSM)", evidence.fgsm, "IFGSM", evidence.ifgsm, thresholds.tolerance),
        (
            "a search without gradients",
            evidence.search,
            "the best gradient attack",
            best,
            thresholds.tolerance,
        ),
        ("transfer", evidence.transfer, "the best gradient attack", best, thresholds.tolerance),
    ]
    for name, found, rival, claimed, allowed in comparisons:
        if found is not None:
            reasons.extend(_beaten(name, found, rival, claimed, evidence.epsilons, allowed))
    reasons.extend(_rises(evidence, thresholds.tolerance))
    if evidence.unbounded > thresholds.unbounded:
        reasons.append(
            f"IFGSM leaves {evidence.unbounded:.1%} accuracy when every image is allowed, where 0% is right"
        )
    return reasons


def _beaten(
    name: str, found: list[float], rival: str, claimed: list[float], epsilons: Sequence[float], allowed: float
) -> list[str]:
    gaps = [ours - theirs for ours, theirs in zip(claimed, found, strict=True)]
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[worst] <= allowed:
        return []
    return [
        f"{name} leaves {found[worst]:.1%} accuracy at epsilon {epsilons[worst]:g}, "
        f"where {rival} leaves {claimed[worst]:.1%}"
    ]


@torch.no_grad()
def _saturated(model: nn.Module, batches: Batches) -> float:
    count, total = 0, 0
    with frozen(model):
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        for x, _ in batches:
            top = model(x.to(device)).float().softmax(1).amax(1)
            count, total = count + int((top == 1).sum()), total + len(top)
    return count / total


def _rises(evidence: Evidence, allowed: float) -> list[str]:
    steps: Mapping[float, float] = {0.0: evidence.clean} | dict(
        zip(evidence.epsilons, evidence.ifgsm, strict=True)
    )
    lowest, reasons = 1.0, []
    for epsilon, accuracy in steps.items():
        if accuracy > lowest + allowed:
            reasons.append(
                f"IFGSM leaves {accuracy:.1%} accuracy at epsilon {epsilon:g}, more than the {lowest:.1%} "
                "at a smaller one"
            )
        lowest = min(lowest, accuracy)
    return reasons[:1]
