"""Does the linearised distance (Eq. 7 of the paper) say how far the class boundary really is?

The real distance is the smallest perturbation that changes the class of a sample; foolbox searches for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmsweep.attacks.balls import ORDERS, Norm, lengths
from lmsweep.attacks.measures.curve import tracked
from lmsweep.margin import margin_distance
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed

Values = NDArray[np.float64]
DEEPFOOL_STEPS = 50


def minimal_distances(
    model: nn.Module, x: Tensor, y: Tensor, *, norm: Norm, steps: int = 200, seed: int = 0
) -> Tensor:
    """Return, per sample, the length in `norm` of the smallest perturbation found that changes the class.

    It is an upper bound of the true distance: 0 where the clean image is misclassified, infinite where
    nothing was found. The network is left untouched, and so is torch's generator.

    l2 takes the better of DDN (Rony et al., 2019) and DeepFool (Moosavi-Dezfooli et al., 2016): foolbox
    3.3.4's FMN never projects in l2, because its factor divides a norm by itself. linf takes the better of
    FMN (Pintor et al., 2021) and DeepFool. l1 takes FMN three times: from the image alone it finds nothing
    for about a fifth of the digits, so it also starts from DDN's result; and it heads for the best-scored
    class, which need not be the nearest, so it is also sent to the class that is nearest by Eq. 7.
    """
    return minimal_examples(model, x, y, norm=norm, steps=steps, seed=seed)[1]


def minimal_examples(
    model: nn.Module, x: Tensor, y: Tensor, *, norm: Norm, steps: int = 200, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The nearest image of another class that was found for each sample, and its distance.

    See `minimal_distances`; a sample for which nothing was found keeps its image.
    """
    if norm not in ORDERS:
        raise ValueError(f"norm={norm!r} is not allowed: it must be one of {', '.join(ORDERS)}")
    images, best = x.clone(), torch.zeros(len(x), device=x.device)
    # DDN draws from torch's global generator where a gradient is zero.
    with frozen(model), torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(derive_seed(seed, "minimal norm"))
        right = ~_wrong(model, x, y)
        if not model(x[:1].detach().requires_grad_()).requires_grad:
            best[right] = torch.inf  # a network without any gradient, which all these attacks follow
        elif bool(right.any()):
            images[right], best[right] = _search(model, x[right], y[right], norm, steps)
    return images, best


def _search(model: nn.Module, x: Tensor, y: Tensor, norm: Norm, steps: int) -> tuple[Tensor, Tensor]:
    """The nearest that any of the norm's attacks finds, for samples that are classified correctly."""
    import eagerpy
    from foolbox import PyTorchModel, TargetedMisclassification
    from foolbox import attacks as fa

    wrapped = PyTorchModel(model, bounds=(0.0, 1.0), device=x.device)
    images, best = x.clone(), torch.full((len(x),), torch.inf, device=x.device)

    def take(found: Tensor, rows: Tensor) -> None:
        found = found.clamp(0.0, 1.0)
        nearer = _wrong(model, found, y[rows]) & (lengths(found - x[rows], norm) < best[rows])
        images[rows[nearer]] = found[nearer]
        best[rows[nearer]] = lengths(found - x[rows], norm)[nearer]

    everyone = torch.arange(len(x), device=x.device)
    attacks: dict[Norm, list[Any]] = {
        "l1": [fa.L1FMNAttack(steps=steps)],
        "l2": [fa.DDNAttack(steps=steps), fa.L2DeepFoolAttack(steps=min(steps, DEEPFOOL_STEPS))],
        "linf": [fa.LInfFMNAttack(steps=steps), fa.LinfDeepFoolAttack(steps=min(steps, DEEPFOOL_STEPS))],
    }
    for attack in attacks[norm]:
        take(attack.run(wrapped, x, y), everyone)
    if norm == "l1":
        nearest = TargetedMisclassification(nearest_class(model, x, y, norm=norm))
        take(attacks["l1"][0].run(wrapped, x, nearest), everyone)
        start = attacks["l2"][0].run(wrapped, x, y)
        rows = _wrong(model, start, y).nonzero().squeeze(1)
        if len(rows):
            points = eagerpy.astensor(start[rows])
            take(attacks["l1"][0].run(wrapped, x[rows], y[rows], starting_points=points), rows)
    return images, best


def nearest_class(model: nn.Module, x: Tensor, y: Tensor, *, norm: Norm) -> Tensor:
    """The other class whose boundary is nearest to each image by the linearised distance."""
    return _distances(model, x, y, norm).argmin(1)


def linearised_distances(model: nn.Module, x: Tensor, y: Tensor, *, norm: Norm) -> Tensor:
    """The signed linearised distance of each image to its nearest class boundary, in the input space."""
    return _distances(model, x, y, norm).amin(1)


def _distances(model: nn.Module, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
    with frozen(model), torch.enable_grad():
        x = x.detach().requires_grad_()
        return margin_distance(model(x), y, [x], norm=ORDERS[norm]).detach().squeeze(2)


@torch.no_grad()
def _wrong(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    wrong: Tensor = model(x).argmax(1) != y
    return wrong


@dataclass(frozen=True)
class Agreement:
    """Both distances of the samples that are classified correctly, and how well they agree."""

    norm: Norm
    linearised: Values
    found: Values
    rank_correlation: float | None  # Spearman's; None when there are too few samples
    p_value: float | None
    misclassified: int  # samples left out because they lie on the wrong side already
    not_found: int  # samples left out because no attack found a boundary

    def to_dict(self) -> dict[str, Any]:
        """Plain values for results.json; the ratio says how far the linearisation is off on the whole."""
        return {
            "norm": self.norm,
            "rank_correlation": self.rank_correlation,
            "p_value": self.p_value,
            "median_ratio": float(np.median(self.found / self.linearised)) if len(self.found) else None,
            "samples": len(self.found),
            "misclassified": self.misclassified,
            "not_found": self.not_found,
            "linearised": self.linearised.tolist(),
            "found": self.found.tolist(),
        }


def compare_distances(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], *, norm: Norm, steps: int, seed: int = 0
) -> Agreement:
    """Measure both distances of every sample, and the rank correlation over those that have both."""
    from scipy.stats import spearmanr

    pairs = []
    device = next(model.parameters()).device
    for x, y in tracked(batches, None, f"distances in {norm}"):
        x, y = x.to(device), y.to(device)
        linear = linearised_distances(model, x, y, norm=norm)
        found = minimal_distances(model, x, y, norm=norm, steps=steps, seed=seed)
        pairs.append(torch.stack([linear, found]).double().cpu())
    linear, found = torch.cat(pairs, 1).numpy()
    right = found > 0
    both = right & np.isfinite(found)
    rank_correlation = p_value = None
    if both.sum() > 2:
        rank_correlation, p_value = (float(value) for value in spearmanr(linear[both], found[both]))
    return Agreement(
        norm=norm,
        linearised=linear[both],
        found=found[both],
        rank_correlation=rank_correlation,
        p_value=p_value,
        misclassified=int((~right).sum()),
        not_found=int((right & ~np.isfinite(found)).sum()),
    )
