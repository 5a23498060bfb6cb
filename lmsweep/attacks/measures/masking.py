"""Is robustness real, or only the lack of a gradient to follow? Measurements, and a verdict over them.

The question is whether IFGSM with cross-entropy, which is what figures show, claims more accuracy than the
worst of many attacks leaves (Athalye et al., 2018; Carlini et al., 2019), and whether those attacks were
strong enough to tell (Pintor et al., 2022).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lmsweep.attacks.apgd import APGD
from lmsweep.attacks.attack import Attack, Clean
from lmsweep.attacks.ensemble import Ensemble
from lmsweep.attacks.fgsm import FGSM
from lmsweep.attacks.ifgsm import IFGSM
from lmsweep.attacks.measures.curve import (
    Batches,
    Curve,
    Part,
    Remember,
    afresh,
    attack_curve,
    device_of,
    transfer_curves,
    within,
)
from lmsweep.attacks.measures.indicators import ADVICE, incomplete_optimisation, unstable_predictions
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed

Verdict = Literal["consistent", "gradients masked", "attack too weak to say"]
# How large the gap and every sign may be before they count; docs/attacks.md says how limits were chosen.
Thresholds = Mapping[str, float]
ATTACKED, JUDGING = 8, 50  # draws that attacks climb, and other draws that judge what they find
ROUNDING = 1e-9  # 0.65 - 0.6 is a little more than 0.05
GRADIENT_FREE = "search"
NOTHING_HIDDEN = "ifgsm_log_odds"  # the attack of the claim, with gradients that nothing hides
# Each of these measures what hidden gradients cost an attack; the other signs say why, and decide nothing.
OF_MASKING = ("hidden_gradients", "every_unconstrained_fails", "gradient_free_wins")
# Signs that the strongest attacks failed as well, so that their accuracy may be too high.
OF_THE_STRONGEST = ("unstable_predictions", "incomplete_optimisation", "every_unconstrained_fails")


@dataclass(frozen=True)
class Evidence:
    """Accuracies over `epsilons`, and what was seen on the way."""

    epsilons: tuple[float, ...]
    clean: float
    curves: dict[str, list[float]]  # of every attack
    worst: list[float]  # over all attacks and smaller epsilons, for each image
    indicators: dict[str, float | None]  # None where there was nothing to measure, by names of ADVICE
    saturated: float  # share of clean samples with a softmax of exactly 1
    samples: int

    @property
    def signs(self) -> dict[str, float | None]:
        """Every indicator; whether softmax saturates is one."""
        return {**self.indicators, "saturated": self.saturated}

    @property
    def gap(self) -> tuple[float, int]:
        """How much more accuracy IFGSM claims than is left, and at which epsilon most."""
        gaps = [claimed - left for claimed, left in zip(self.curves["ifgsm"], self.worst, strict=True)]
        return max(gaps), max(range(len(gaps)), key=gaps.__getitem__)

    def raised(self, thresholds: Thresholds) -> dict[str, float]:
        """The signs that are beyond their limits."""
        return {
            name: value
            for name, value in self.signs.items()
            if value is not None and value > thresholds[name] + ROUNDING
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for results.json."""
        return {**asdict(self), "epsilons": list(self.epsilons)}


class Expected(nn.Module):
    """The mean logits of a network over `draws` draws, which are the same ones in every call.

    A network may draw its answer at random. An attack on single draws climbs noise, and a single lucky draw
    counts as its success. So the expectation is attacked (expectation over transformation, Athalye et al.,
    2018), and other draws judge what was found.
    """

    def __init__(self, network: nn.Module, draws: int, seed: int) -> None:
        super().__init__()
        self.network, self.draws, self.seed = network, draws, seed

    def forward(self, x: Tensor) -> Tensor:
        """Mean logits of a batch."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            logits: Tensor = torch.stack([self.network(x) for _ in range(self.draws)]).mean(0)
        return logits


@torch.no_grad()
def steady(model: nn.Module, batches: Batches, seed: int) -> tuple[nn.Module, nn.Module]:
    """What attacks climb, and what answers for their examples: the network itself unless it draws."""
    x = next(iter(batches))[0].to(device_of(model))
    with frozen(model), torch.random.fork_rng():
        one, other = model(x), model(x)
    # Kernels of a GPU may add in another order each time, which changes last bits only.
    if not bool((one - other).abs().max() > 1e-4 * one.abs().max()):
        return model, model
    attacked = Expected(model, ATTACKED, derive_seed(seed, "draws attacked"))
    return attacked, Expected(model, JUDGING, derive_seed(seed, "draws judging"))


def measure(
    model: nn.Module,
    batches: Batches,
    *,
    epsilons: Sequence[float],
    alpha: float,
    unbounded_alpha: float,
    attack: Attack,
    seed: int = 0,
    source: nn.Module | None = None,
    tell: Callable[[str], object] = lambda _: None,
    remember: Remember = afresh,
) -> Evidence:
    """Run every attack of the audit on the same samples.

    `attack` is the strong one, of which every member is run; its epsilons are replaced. `source` is a network
    to transfer from. `tell` hears which attack begins; `remember` is asked for every batch of each.
    """
    strengths = tuple(sorted(epsilons))
    claim = IFGSM(epsilons=strengths, alpha=alpha)
    strong = attack.model_copy(update={"epsilons": strengths})
    members: Mapping[str, Attack] = {strong.kind: strong}
    if isinstance(strong, Ensemble):
        members = strong.members()
    attacked, answering = steady(model, batches, seed)
    # The last point counts, as in the paper; where the way counts is a sign of its own. What figures show
    # takes the network as it is; every other attack takes it at its steadiest.
    attacks: dict[str, tuple[nn.Module, Attack, bool]] = {
        "fgsm": (model, FGSM(epsilons=strengths), False),
        "ifgsm": (model, claim, False),
        "ifgsm, every step": (model, claim, True),
        NOTHING_HIDDEN: (attacked, claim.model_copy(update={"loss": "log_odds"}), False),
    }
    # Stopping at the first lucky draw would leave examples that other draws answer rightly.
    attacks |= {name: (attacked, member, attacked is model) for name, member in members.items()}

    def curve(name: str, network: nn.Module, one: Attack, early_stop: bool = True) -> Curve:
        kept = within(name, remember)
        return attack_curve(
            network, batches, one, seed=seed, early_stop=early_stop, judge=answering, remember=kept
        )

    curves: dict[str, Curve] = {}
    for number, (name, (network, one, early_stop)) in enumerate(attacks.items(), start=1):
        tell(f"{name}, attack {number} of {len(attacks) + 2}")
        curves[name] = curve(name, network, one, early_stop)
    anywhere = curves.pop("ifgsm, every step")
    worst = _nested([*(curve.correct for curve in curves.values()), anywhere.correct])
    tell(f"attacks without bound, {len(attacks) + 1} of {len(attacks) + 2}")
    indicators: dict[str, float | None] = {
        "zero_gradients": curves["fgsm"].zero_gradients[0] or 0.0,
        "hidden_gradients": _lead(curves["ifgsm"].correct, curves[NOTHING_HIDDEN].correct),
        "silent_success": float((curves["ifgsm"].correct & ~anywhere.correct).double().mean(1).amax()),
        **_unconstrained(partial(curve, network=attacked), unbounded_alpha),
        "gradient_free_wins": None,
        "transfer_failure": None,
    }
    if GRADIENT_FREE in curves:
        others = _nested([curve.correct for name, curve in curves.items() if name != GRADIENT_FREE])
        indicators["gradient_free_wins"] = _lead(others, curves[GRADIENT_FREE].correct)
    if source is not None:
        tell(f"transfer, attack {len(attacks) + 2} of {len(attacks) + 2}")
        both = {"source": source, "target": answering}
        kept = within("transfer", remember)
        found = transfer_curves(source, both, batches, claim, seed=seed, remember=kept)
        curves["transfer"] = found["target"]
        worst = _nested([worst, found["target"].correct])
        failures = ~found["source"].correct & found["target"].correct
        indicators["transfer_failure"] = float(failures.double().mean(1).amax())
    left = worst.double().mean(1).tolist()
    # Where many samples are left to tell something, but the attack is as strong as it can be.
    some = [epsilon for epsilon, accuracy in zip(strengths, left, strict=True) if accuracy > 0.1]
    steps = strong.apgd_steps if isinstance(strong, Ensemble) else 100
    count = partial(_counted, attacked, answering, max(some, default=strengths[0]), steps, seed)
    parts = [remember(f"signs/{n}", partial(count, x, y)) for n, (x, y) in enumerate(batches)]
    unstable, incomplete, saturated, total = torch.stack([part["counts"] for part in parts]).sum(0).tolist()
    # Of all samples: a few ascents that could still succeed cannot change much.
    indicators |= {"unstable_predictions": unstable / total, "incomplete_optimisation": incomplete / total}
    return Evidence(
        epsilons=strengths,
        clean=curves["fgsm"].to_dict()["clean_accuracy"],
        curves={name: curve.accuracy for name, curve in curves.items()},
        worst=left,
        indicators={name: indicators[name] for name in ADVICE if name in indicators},
        saturated=saturated / total,
        samples=len(anywhere.clean_correct),
    )


def _nested(correct: Sequence[Tensor]) -> Tensor:
    """Samples that are right under every attack, at this epsilon and at all smaller ones."""
    return torch.stack(list(correct)).all(0).int().cummin(0).values.bool()


def _lead(behind: Tensor, ahead: Tensor) -> float:
    """How much less accuracy is left in `ahead`, at the epsilon where most."""
    return max(0.0, float((behind.double().mean(1) - ahead.double().mean(1)).amax()))


def _unconstrained(curve: Callable[..., Curve], alpha: float) -> dict[str, float | None]:
    """With epsilon 1 every image can be reached, another class's among them."""
    claim = curve("unconstrained", one=IFGSM(epsilons=(1.0,), alpha=alpha))
    correct = claim.correct
    if bool(correct.any()):
        strong = APGD(epsilons=(1.0,), steps=max(20, round(1 / alpha)), loss="margin")
        correct = correct & curve("every unconstrained", one=strong).correct
    return {
        "unconstrained_fails": claim.accuracy[0],
        "every_unconstrained_fails": float(correct.double().mean()),
    }


def _counted(
    attacked: nn.Module, answering: nn.Module, epsilon: float, steps: int, seed: int, x: Tensor, y: Tensor
) -> Part:
    """How many samples of a batch have unstable predictions, incomplete ascents, and a saturated softmax."""
    x, y = x.to(device_of(attacked)), y.to(device_of(attacked))
    with torch.no_grad(), frozen(attacked), frozen(answering):
        clean, top = Clean(x, y, attacked(x)), answering(x).float().softmax(1).amax(1)
    _, incomplete = incomplete_optimisation(attacked, clean, epsilon=epsilon, steps=steps, seed=seed)
    unstable = int(unstable_predictions(attacked, x, y, seed).sum())
    return {"counts": torch.tensor([unstable, incomplete, int((top == 1).sum()), len(x)])}


def judge(evidence: Evidence, thresholds: Thresholds) -> tuple[Verdict, list[str]]:
    """The verdict, and its reasons: the gap, then every sign with its value and what to do about it.

    A gap alone does not tell masking: IFGSM may simply be weaker than the worst of all attacks. Gradients are
    masked where the gap is one of gradients: where the same IFGSM does better with gradients that nothing
    hides, where a search without gradients does better than all, or where no gradient leads anywhere.
    """
    gap, at = evidence.gap
    epsilon, claimed, left = evidence.epsilons[at], evidence.curves["ifgsm"][at], evidence.worst[at]
    raised = evidence.raised(thresholds)
    signs = {name: f"{ADVICE[name][0].format(value)}: {ADVICE[name][1]}" for name, value in raised.items()}
    if gap > thresholds["gap"] + ROUNDING:
        reasons = [
            f"IFGSM leaves {claimed:.1%} accuracy at epsilon {epsilon:g}, where the worst of all attacks "
            f"leaves {left:.1%}"
        ]
        if any(name in raised for name in OF_MASKING):
            return "gradients masked", [*reasons, *signs.values()]
        reasons.append(
            "gradients in plain sight do not close the gap, so IFGSM is too weak here: report the worst of "
            "all attacks"
        )
        return "attack too weak to say", [*reasons, *signs.values()]
    weak = [signs[name] for name in OF_THE_STRONGEST if name in signs]
    if weak:
        return "attack too weak to say", weak
    passed = [
        f"the worst of all attacks leaves at most {max(gap, 0):.1%} less accuracy than IFGSM",
        f"without a bound IFGSM leaves {evidence.indicators['unconstrained_fails']:.1%} accuracy",
        "the strongest ascents had come to rest",
    ]
    if evidence.indicators["transfer_failure"] is None:
        passed.append("transfer was not tested, because no other network was at hand")
    return "consistent", [*passed, *(f"but {sign}" for sign in signs.values())]
