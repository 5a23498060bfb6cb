"""The fast gradient sign method (Goodfellow et al., 2015): one step of epsilon in every pixel."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import BudgetAttack, Clean
from lmsweep.attacks.balls import per_sample, project
from lmsweep.attacks.trajectory import AttackLoss, Examples, input_gradient, is_zero, scale_to_snr, unsettled
from lmsweep.margin.temporary import frozen


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
        loss: "xent" as in the paper, or another of `attack_loss`.
        targeted: go down instead of up.
        clip_pixels: keep the result in [0, 1].
    """
    with frozen(model):
        sign, _ = fgsm_direction(model, x, y, loss=loss, targeted=targeted)
    return project(x + epsilon * sign, x, epsilon, clip_pixels)


def fgsm_direction(
    model: nn.Module, x: Tensor, y: Tensor, *, loss: AttackLoss, targeted: bool
) -> tuple[Tensor, Tensor]:
    """The sign of the gradient, turned around for a targeted attack; how many gradients were exactly zero.

    The count stays on the device. Call it inside `frozen`.
    """
    gradient = input_gradient(model, x, y, loss).gradient
    sign = gradient.sign()
    return -sign if targeted else sign, is_zero(gradient).sum()


class FGSM(BudgetAttack):
    """One gradient for all epsilons or SNR budgets."""

    seeded = False

    loss: AttackLoss = "xent"

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        x = clean.x
        labels, targeted = clean.aim(self.target)
        settled = clean.settled(labels, targeted, early_stop)
        known = unsettled(x).settled if settled is None else settled
        rows = (known < 0).nonzero().squeeze(1)
        sign, zeros = torch.zeros_like(x), torch.zeros((), dtype=torch.long)
        if len(rows):
            found = fgsm_direction(model, x[rows], labels[rows], loss=self.loss, targeted=targeted)
            sign[rows], zeros = found
        for strength in self.strengths:
            size: float | Tensor = strength
            if self.unit == "snr":
                size = per_sample(scale_to_snr(x, sign, strength, clip_pixels=self.clip_pixels), x)
            moved = project(x + size * sign, x, size, self.clip_pixels)
            yield Examples(moved, known, len(rows), zeros)
