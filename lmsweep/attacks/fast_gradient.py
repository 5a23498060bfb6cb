"""The fast gradient sign method and its iterated form, as in the paper's appendix."""

import math
from typing import NamedTuple

from torch import Tensor, nn

from lmsweep.attacks.gradient import frozen, input_gradient, is_zero
from lmsweep.attacks.losses import AttackLoss
from lmsweep.attacks.trajectory import Stop, project, trajectory


class Direction(NamedTuple):
    """Where FGSM goes: the same for every epsilon."""

    sign: Tensor
    zero_gradients: Tensor  # a count, on the device


def fgsm(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float,
    loss: AttackLoss = "xent",
    targeted: bool = False,
    clip_pixels: bool = True,
) -> Tensor:
    """Return x + epsilon * sign(gradient of the loss) (Goodfellow et al., 2015).

    Args:
        model: maps pixels in [0, 1] to logits; it is left untouched and evaluated in evaluation mode.
        x: (batch, ...) images.
        y: the true classes; with `targeted` the classes to reach.
        epsilon: size of the step in every pixel.
        loss: "xent" as in the paper, or "margin", the logit margin.
        targeted: go down instead of up.
        clip_pixels: keep the result in [0, 1].
    """
    with frozen(model):
        direction = fgsm_direction(model, x, y, loss=loss, targeted=targeted)
    return project(x + epsilon * direction.sign, x, epsilon, clip_pixels)


def fgsm_direction(model: nn.Module, x: Tensor, y: Tensor, *, loss: AttackLoss, targeted: bool) -> Direction:
    """The sign of the gradient, turned around for a targeted attack. Call it inside `frozen`."""
    gradient = input_gradient(model, x, y, loss).gradient
    sign = gradient.sign()
    return Direction(-sign if targeted else sign, is_zero(gradient).sum())


def ifgsm(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float,
    alpha: float,
    steps: int | None = None,
    loss: AttackLoss = "xent",
    targeted: bool = False,
    clip_pixels: bool = True,
) -> Tensor:
    """Repeat x <- Clip(x + alpha * sign(gradient)), clipping to the ball around the image (Kurakin et al.).

    `steps` must be at least epsilon / alpha, as in the paper, and is the smallest such number when None; the
    other arguments are those of `fgsm`.
    """
    stop = Stop(epsilon, iterations(epsilon, alpha, steps))
    with frozen(model):
        (found,) = trajectory(
            model, x, y, [stop], alpha=alpha, loss=loss, targeted=targeted, clip_pixels=clip_pixels
        )
    return found.x


def iterations(epsilon: float, alpha: float, steps: int | None = None) -> int:
    """The number of IFGSM steps: k >= epsilon / alpha."""
    if not alpha > 0:
        raise ValueError(f"alpha={alpha} is not allowed: it must be > 0")
    least = math.ceil(epsilon / alpha - 1e-9)  # 0.3 / 0.1 is a little more than 3
    if steps is None:
        return least
    if steps < least:
        raise ValueError(
            f"steps={steps} is not allowed: IFGSM takes at least epsilon / alpha = {least} steps for "
            f"epsilon={epsilon} and alpha={alpha}"
        )
    return steps
