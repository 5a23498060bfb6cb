"""Does the linearised distance (Eq. 7 of the paper) say how far the class boundary really is?"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmsweep.attacks.balls import Norm
from lmsweep.attacks.measures.curve import tracked
from lmsweep.attacks.minimal import class_distances, minimal_examples


def compare_distances(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], *, norm: Norm, steps: int, seed: int = 0
) -> dict[str, Any]:
    """Measure both distances of every sample, and how well they agree where a sample has both.

    The distance found is that of `minimal_examples`; the linearised one is to the nearest class boundary, in
    the input space. Left out are samples on the wrong side already (`misclassified`) and those for which no
    attack found a boundary (`not_found`). The rank correlation is Spearman's, None of too few samples; the
    ratio says how far the linearisation is off on the whole.
    """
    from scipy.stats import spearmanr

    pairs = []
    device = next(model.parameters()).device
    for x, y in tracked(batches, f"distances in {norm}"):
        x, y = x.to(device), y.to(device)
        linear = class_distances(model, x, y, norm).amin(1)
        _, found = minimal_examples(model, x, y, norm=norm, steps=steps, seed=seed)
        pairs.append(torch.stack([linear, found]).double().cpu())
    linear, found = torch.cat(pairs, 1).numpy()
    right = found > 0
    both = right & np.isfinite(found)
    rank_correlation = p_value = None
    if both.sum() > 2:
        rank_correlation, p_value = (float(value) for value in spearmanr(linear[both], found[both]))
    return {
        "norm": norm,
        "rank_correlation": rank_correlation,
        "p_value": p_value,
        "median_ratio": float(np.median(found[both] / linear[both])) if both.any() else None,
        "samples": int(both.sum()),
        "misclassified": int((~right).sum()),
        "not_found": int((right & ~np.isfinite(found)).sum()),
        "linearised": linear[both].tolist(),
        "found": found[both].tolist(),
    }
