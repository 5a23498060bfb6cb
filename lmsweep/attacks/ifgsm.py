"""The iterated fast gradient sign method (Kurakin et al., 2017), the attack of the paper's appendix."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import BudgetAttack, Clean, Positive
from lmsweep.attacks.balls import per_sample
from lmsweep.attacks.fgsm import fgsm_direction
from lmsweep.attacks.trajectory import AttackLoss, Examples, Stop, scale_to_snr, trajectory, unsettled
from lmsweep.margin.temporary import frozen


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


class IFGSM(BudgetAttack):
    """One path for all epsilons when each takes as few steps as it may.

    When each takes `steps`, one path for as long as no ball is reached; each goes on alone from there.
    """

    seeded = False

    loss: AttackLoss = "xent"
    alpha: Positive
    steps: Annotated[
        int | None, Field(ge=1, description="a whole number >= 1, or null for the least that reaches epsilon")
    ] = None

    @model_validator(mode="after")
    def _reaches_every_epsilon(self) -> Self:
        widest = max(self.epsilons, default=0.0)
        if self.steps and self.unit == "epsilon" and self.steps * self.alpha < widest * (1 - 1e-9):
            raise ValueError(
                f"steps={self.steps} is not allowed: IFGSM takes at least epsilon / alpha steps, here "
                f"{widest:g} / {self.alpha:g}; raise steps or alpha."
            )
        return self

    @override
    def identity(self, *, transfer: bool) -> dict[str, Any]:
        keys = super().identity(transfer=transfer)
        if self.unit == "snr" and self.steps is not None:
            del keys["alpha"]  # the number of steps alone says how long each of them is
        return keys

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        labels, targeted = clean.aim(self.target)
        climb: dict[str, Any] = {"loss": self.loss, "targeted": targeted, "clip_pixels": self.clip_pixels}
        walk: Callable[..., Iterator[Examples]] = partial(
            trajectory, model, clean.x, labels, alpha=self.alpha, early_stop=early_stop, **climb
        )
        settled = clean.settled(labels, targeted, early_stop)
        if self.unit == "snr":
            for budget in self.strengths:
                yield self._at_snr(model, clean.x, labels, budget, climb)
        elif self.steps is None:
            stops = [Stop(epsilon, iterations(epsilon, self.alpha)) for epsilon in sorted(self.strengths)]
            found = dict(zip(sorted(self.strengths), walk(stops, settled=settled), strict=True))
            yield from (found[epsilon] for epsilon in self.strengths)
        else:
            # Steps that no ball cuts, well short of its edge, where rounding could decide.
            free = {e: max(0, math.floor(e / self.alpha - 0.01)) for e in sorted(self.strengths)}
            shared = walk([Stop(e, count) for e, count in free.items()], settled=settled)
            found = dict(zip(free, shared, strict=True))
            for e in self.strengths:
                first = found[e]
                known = first.settled if early_stop else None
                stop = Stop(e, self.steps - free[e] if e > 0 else 0)
                (rest,) = walk([stop], settled=known, start=first.x)
                yield rest.after(first)

    def _at_snr(self, model: nn.Module, x: Tensor, labels: Tensor, budget: float, climb: Any) -> Examples:
        """Walk inside the ball that FGSM needs for the budget (dB), then stretch what was found to it.

        Each sample has an epsilon of its own and takes k steps of epsilon / k: `steps` of them, or when None
        the least number of which none is longer than alpha, whatever else is in the batch.
        """
        sign, _ = fgsm_direction(model, x, labels, loss=self.loss, targeted=climb["targeted"])
        sizes = scale_to_snr(x, sign, budget, clip_pixels=self.clip_pixels)
        counts = [self.steps or max(1, iterations(size, self.alpha)) for size in sizes.tolist()]
        end, walked = x.clone(), unsettled(x)
        for count in sorted(set(counts)):
            rows = torch.tensor([i for i, wanted in enumerate(counts) if wanted == count], device=x.device)
            epsilon = per_sample(sizes[rows], x)
            stop = Stop(epsilon, count)
            (found,) = trajectory(model, x[rows], labels[rows], [stop], alpha=epsilon / count, **climb)
            end[rows] = found.x
            walked = walked.after(found)
        change = end - x
        factor = scale_to_snr(x, change, budget, clip_pixels=self.clip_pixels)
        moved = x + per_sample(factor, x) * change
        return walked._replace(x=moved.clamp(0.0, 1.0) if self.clip_pixels else moved)
