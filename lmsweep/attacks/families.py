"""Attacks over a range of strengths: one object per attack, one batch in, one set of examples per strength.

What the strengths have in common (the gradient of FGSM, the path of IFGSM, the noise) is computed once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lmsweep.attacks.fast_gradient import fgsm_direction, iterations
from lmsweep.attacks.gaussian import standard_noise
from lmsweep.attacks.gradient import per_sample
from lmsweep.attacks.iterated_snr import ifgsm_at_snr
from lmsweep.attacks.losses import AttackLoss
from lmsweep.attacks.projected_gradient import pgd_examples
from lmsweep.attacks.protocol import Clean, Target
from lmsweep.attacks.signal_to_noise import scale_to_snr
from lmsweep.attacks.square_search import search_examples
from lmsweep.attacks.trajectory import Examples, Stop, project, trajectory, unsettled


@dataclass(frozen=True)
class FGSM:
    """One gradient for all epsilons, or for all SNR budgets when `unit` is "snr"."""

    strengths: tuple[float, ...]
    unit: Literal["epsilon", "snr"] = "epsilon"
    loss: AttackLoss = "xent"
    target: Target = "none"
    clip_pixels: bool = True

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield x + epsilon * sign for each strength."""
        x = clean.x
        labels, targeted = clean.aim(self.target)
        settled = clean.settled(labels, targeted, early_stop)
        known = unsettled(x).settled if settled is None else settled
        rows = (known < 0).nonzero().squeeze(1)
        sign, zeros = torch.zeros_like(x), torch.zeros((), dtype=torch.long)
        if len(rows):
            direction = fgsm_direction(model, x[rows], labels[rows], loss=self.loss, targeted=targeted)
            sign[rows], zeros = direction.sign, direction.zero_gradients
        for strength in self.strengths:
            size: float | Tensor = strength
            if self.unit == "snr":
                size = per_sample(scale_to_snr(x, sign, strength, clip_pixels=self.clip_pixels), x)
            moved = project(x + size * sign, x, size, self.clip_pixels)
            yield Examples(moved, known, len(rows), zeros)


@dataclass(frozen=True)
class IFGSM:
    """One path for all epsilons when each takes as few steps as it may.

    When each takes `steps`, one path for as long as no ball is reached; each goes on alone from there.
    """

    strengths: tuple[float, ...]
    alpha: float
    steps: int | None = None
    unit: Literal["epsilon", "snr"] = "epsilon"
    loss: AttackLoss = "xent"
    target: Target = "none"
    clip_pixels: bool = True

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the end of the path for each strength."""
        labels, targeted = clean.aim(self.target)

        def walk(
            stops: list[Stop], settled: Tensor | None, start: Tensor | None = None
        ) -> Iterator[Examples]:
            return trajectory(
                model,
                clean.x,
                labels,
                stops,
                alpha=self.alpha,
                loss=self.loss,
                targeted=targeted,
                clip_pixels=self.clip_pixels,
                start=start,
                settled=settled,
                early_stop=early_stop,
            )

        settled = clean.settled(labels, targeted, early_stop)
        if self.unit == "snr":
            for budget in self.strengths:
                yield ifgsm_at_snr(
                    model,
                    clean.x,
                    labels,
                    budget=budget,
                    alpha=self.alpha,
                    steps=self.steps,
                    loss=self.loss,
                    targeted=targeted,
                    clip_pixels=self.clip_pixels,
                )
        elif self.steps is None:
            stops = [Stop(epsilon, iterations(epsilon, self.alpha)) for epsilon in sorted(self.strengths)]
            found = dict(zip(sorted(self.strengths), walk(stops, settled), strict=True))
            yield from (found[epsilon] for epsilon in self.strengths)
        else:
            steps = {e: iterations(e, self.alpha, self.steps) if e > 0 else 0 for e in self.strengths}
            # Steps that no ball cuts, well short of its edge, where rounding could decide.
            free = {e: max(0, math.floor(e / self.alpha - 0.01)) for e in sorted(steps)}
            shared = walk([Stop(e, count) for e, count in free.items()], settled)
            found = dict(zip(free, shared, strict=True))
            for e in self.strengths:
                first = found[e]
                known = first.settled if early_stop else None
                (rest,) = walk([Stop(e, steps[e] - free[e])], known, first.x)
                yield rest._replace(
                    gradients=first.gradients + rest.gradients,
                    zero_gradients=first.zero_gradients + rest.zero_gradients,
                )


@dataclass(frozen=True)
class PGD:
    """Random starts, so every epsilon has paths of its own."""

    strengths: tuple[float, ...]
    steps: int
    alpha: float | None = None
    restarts: int = 1
    loss: AttackLoss = "xent"
    target: Target = "none"
    clip_pixels: bool = True

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the best of the restarts for each epsilon."""
        labels, targeted = clean.aim(self.target)
        for epsilon in self.strengths:
            yield pgd_examples(
                model,
                clean.x,
                labels,
                epsilon=epsilon,
                steps=self.steps,
                alpha=self.alpha,
                restarts=self.restarts,
                seed=seed,
                random_start=True,
                loss=self.loss,
                targeted=targeted,
                clip_pixels=self.clip_pixels,
                settled=clean.settled(labels, targeted, early_stop),
                early_stop=early_stop,
            )


@dataclass(frozen=True)
class RandomSearch:
    """Random squares, without gradients."""

    strengths: tuple[float, ...]
    queries: int
    target: Target = "none"
    clip_pixels: bool = True

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the best proposal for each epsilon."""
        labels, targeted = clean.aim(self.target)
        for epsilon in self.strengths:
            yield search_examples(
                model,
                clean.x,
                labels,
                epsilon=epsilon,
                queries=self.queries,
                seed=seed,
                targeted=targeted,
                clip_pixels=self.clip_pixels,
                settled=clean.settled(labels, targeted, early_stop),
                early_stop=early_stop,
            )


@dataclass(frozen=True)
class GaussianNoise:
    """The same noise at every strength, scaled: a curve over standard deviations without jumps of its own."""

    strengths: tuple[float, ...]
    clip_pixels: bool = True

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the noisy images for each standard deviation."""
        noise = standard_noise(clean.x, seed=seed)
        for stddev in self.strengths:
            noisy = clean.x + stddev * noise
            yield unsettled(noisy.clamp(0.0, 1.0) if self.clip_pixels else noisy)
