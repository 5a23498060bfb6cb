"""Does the linearised distance (Eq. 7 of the paper) say how far the class boundary really is?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmsweep.attacks.minimal_norm import Norm, linearised_distances, minimal_distances
from lmsweep.attacks.progress import tracked

Values = NDArray[np.float64]


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
