"""Projected gradient descent from random points of the ball (Madry et al., 2018)."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import AimedAttack, Clean, Count
from lmsweep.attacks.balls import Norm, per_sample, random_points
from lmsweep.attacks.trajectory import (
    AttackLoss,
    Examples,
    Stop,
    logit_margin,
    predictions,
    standalone,
    trajectory,
    unsettled,
)
from lmsweep.seeds import ALL, Share, derive_seed


def pgd_examples(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    steps: int,
    alpha: float | None = None,
    restarts: int = 1,
    seed: int = 0,
    random_start: bool = True,
    loss: AttackLoss = "xent",
    targeted: bool = False,
    clip_pixels: bool = True,
    norm: Norm = "linf",
    settled: Tensor | None = None,
    early_stop: bool = False,
    share: Share = ALL,
) -> Examples:
    """Return the best example of `restarts` gradient ascents that begin at random points of the ball.

    `alpha` is 2.5 * epsilon / steps when None, enough to cross the ball (Madry et al.). The best example of a
    sample is the one with the largest logit margin, so one that fools the network wins. Random numbers come
    from `seed` alone, drawn for the batch that `x` is a `share` of. `settled` and `early_stop` are those of
    `trajectory`, the other arguments those of `fgsm`. Call it inside `frozen`; `pgd` does so by itself.
    """
    if steps < 1 or restarts < 1:
        raise ValueError(f"steps={steps} and restarts={restarts} are not allowed: both must be at least 1")
    everyone = settled is None and not early_stop
    best = unsettled(x) if settled is None else Examples(x, settled)
    best_margin = torch.full((len(x),), -torch.inf, device=x.device)
    alpha = 2.5 * epsilon / steps if alpha is None else alpha
    stop = Stop(epsilon, steps if epsilon > 0 else 0)
    climb = partial(
        trajectory, model, x, labels, [stop], loss=loss, targeted=targeted, clip_pixels=clip_pixels
    )
    for restart in range(restarts):
        generator = torch.Generator().manual_seed(derive_seed(seed, f"pgd/{restart}"))
        start = random_points(x, epsilon, norm, clip_pixels, generator, share) if random_start else x
        open_ = best.settled < 0
        if early_stop and not bool(open_.any()):
            break
        left = None if everyone else best.settled
        (found,) = climb(alpha=alpha, norm=norm, start=start, settled=left, early_stop=early_stop)
        if restarts == 1 and everyone:
            return found  # there is nothing to compare it with
        if early_stop:
            predicted = predictions(model, found)
            better = open_
            known = torch.where(open_ & ((predicted == labels) == targeted), predicted, best.settled)
        else:
            with torch.no_grad():
                margin = logit_margin(model(found.x), labels)
            margin = -margin if targeted else margin
            better = open_ & (margin > best_margin)
            best_margin = torch.where(better, margin, best_margin)
            known = best.settled
        x_best = torch.where(per_sample(better, x), found.x, best.x)
        best = found._replace(x=x_best, settled=known).after(best)
    return best


pgd = standalone(pgd_examples)


class PGD(AimedAttack):
    """Random starts, so every epsilon has paths of its own."""

    loss: AttackLoss = "xent"
    steps: Count
    alpha: Annotated[
        float | None, Field(gt=0, description="a number > 0, or null for 2.5 * epsilon / steps")
    ] = None
    restarts: Count = 1
    norm: Norm = "linf"

    @override
    def identity(self, *, transfer: bool) -> dict[str, Any]:
        keys = super().identity(transfer=transfer)
        if self.norm == "linf":
            del keys["norm"]  # what was measured before PGD knew other norms is the same measurement
        return keys

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        keys = self.model_dump(include={"steps", "alpha", "restarts", "loss", "norm"})
        return self.one_by_one(partial(pgd_examples, model, seed=seed, **keys), clean, early_stop)
