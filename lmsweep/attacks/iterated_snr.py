"""IFGSM with a signal-to-noise budget instead of an epsilon."""

import torch
from torch import Tensor, nn

from lmsweep.attacks.fast_gradient import fgsm_direction, iterations
from lmsweep.attacks.gradient import per_sample
from lmsweep.attacks.losses import AttackLoss
from lmsweep.attacks.signal_to_noise import scale_to_snr
from lmsweep.attacks.trajectory import Examples, Stop, trajectory, unsettled


def ifgsm_at_snr(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    budget: float,
    alpha: float,
    steps: int | None,
    loss: AttackLoss,
    targeted: bool,
    clip_pixels: bool,
) -> Examples:
    """Walk inside the ball that FGSM needs for the budget (dB), then stretch what was found to the budget.

    Each sample has an epsilon of its own and takes k steps of epsilon / k: `steps` of them, or when None the
    least number of which none is longer than alpha, whatever else is in the batch. Call it inside `frozen`.
    """
    direction = fgsm_direction(model, x, labels, loss=loss, targeted=targeted)
    sizes = scale_to_snr(x, direction.sign, budget, clip_pixels=clip_pixels)
    counts = [steps or max(1, iterations(size, alpha)) for size in sizes.tolist()]
    end, gradients = x.clone(), 0
    zeros: int | Tensor = 0
    for count in sorted(set(counts)):
        rows = torch.tensor([i for i, wanted in enumerate(counts) if wanted == count], device=x.device)
        epsilon = per_sample(sizes[rows], x)
        (found,) = trajectory(
            model,
            x[rows],
            labels[rows],
            [Stop(epsilon, count)],
            alpha=epsilon / count,
            loss=loss,
            targeted=targeted,
            clip_pixels=clip_pixels,
        )
        end[rows] = found.x
        gradients, zeros = gradients + found.gradients, zeros + found.zero_gradients
    change = end - x
    moved = x + per_sample(scale_to_snr(x, change, budget, clip_pixels=clip_pixels), x) * change
    return unsettled(moved.clamp(0.0, 1.0) if clip_pixels else moved, gradients, zeros)
