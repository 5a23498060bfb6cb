"""Auto-PGD: gradient ascent that needs no step size (Croce & Hein, 2020; in l1: Croce & Hein, 2021)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import AtEpsilon, BallAttack, Count
from lmsweep.attacks.balls import Norm, per_sample, project, random_points, steepest
from lmsweep.attacks.trajectory import (
    Examples,
    attack_loss,
    is_zero,
    logit_margin,
    logits_ratio,
    objective_gradient,
    standalone,
    unsettled,
)
from lmsweep.seeds import derive_seed

APGDLoss = Literal["xent", "log_odds", "margin", "dlr", "dlr_targeted"]
MOMENTUM = 0.75  # weight of the new step; the rest repeats the last one
PROGRESS = 0.75  # share of steps since the last checkpoint that must have climbed, or the step is halved
# In l1: radii and shares of the steps of the three stages, share of entries a step changes at first, and how
# steps and entries shrink.
STAGES = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))
FIRST_ENTRIES, SHRINK, SMALLEST_STEP, CHECK_EVERY = 0.2, 1.5, 0.1, 0.04


def checkpoints(steps: int) -> list[int]:
    """After which steps APGD looks back: after 22% of them, then after ever fewer, but at least 6%."""
    shares, gap = [0.22], 0.22
    while shares[-1] < 1:
        gap = max(gap - 0.03, 0.06)
        shares.append(shares[-1] + gap)
    return [math.ceil(share * steps - 1e-9) for share in shares if share <= 1]


def apgd_examples(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    steps: int,
    norm: Norm = "linf",
    loss: APGDLoss = "xent",
    restarts: int = 1,
    targets: int = 9,
    seed: int = 0,
    settled: Tensor | None = None,
    early_stop: bool = False,
    history: list[Tensor] | None = None,
) -> Examples:
    """Return the example with the largest logit margin out of `restarts` ascents from random points.

    With loss="dlr_targeted" each restart is one ascent towards each of the `targets` most likely other
    classes. Pixels stay in [0, 1]. `history` is given the best loss of every sample after each step, NaN for
    samples that are settled. `settled` and `early_stop` are those of `trajectory`. Call it inside `frozen`;
    `apgd` does so by itself.
    """
    known = unsettled(x).settled if settled is None else settled.clone()
    if epsilon == 0:
        return Examples(x, known)
    ascents = _Ascents(model, x, labels, norm, epsilon, steps, known, early_stop, history)
    stages = STAGES if norm == "l1" else ((1.0, 1.0),)
    for number, objective in enumerate(_objectives(model, x, labels, loss, restarts, targets)):
        # Drawn for the whole batch whatever is left of it, so that a sample's luck depends on no other.
        generator = torch.Generator().manual_seed(derive_seed(seed, f"apgd/{number}"))
        point = random_points(x, stages[0][0] * epsilon, norm, True, generator)
        for factor, share in stages:
            if norm == "l1":
                point = project(point, x, factor * epsilon, True, norm)
            point = ascents.climb(objective, point, factor, share)
    return Examples(ascents.found, ascents.known, ascents.gradients, ascents.zeros)


apgd = standalone(apgd_examples)

Objective = Callable[[Tensor, Tensor], Tensor]  # of logits, and of the numbers of their samples


def _objectives(
    model: nn.Module, x: Tensor, labels: Tensor, loss: APGDLoss, restarts: int, targets: int
) -> Iterator[Objective]:
    if loss != "dlr_targeted":
        yield from [lambda logits, rows: attack_loss(logits, labels[rows], loss)] * restarts
        return
    with torch.no_grad():
        others = model(x).scatter(1, labels.unsqueeze(1), -torch.inf).argsort(1, descending=True)
    for number in range(restarts * min(targets, others.shape[1] - 1)):
        target = others[:, number % min(targets, others.shape[1] - 1)]
        yield lambda logits, rows, target=target: logits_ratio(logits.float(), labels[rows], target[rows])  # type: ignore[misc]


class _Seen(NamedTuple):
    """A point for each sample, with the gradient and the loss there."""

    point: Tensor
    gradient: Tensor
    value: Tensor

    def but(self, rows: Tensor, other: "_Seen") -> "_Seen":
        """These, but `other` in the rows that are true."""
        pairs = zip(self, other, strict=True)
        return _Seen(*(torch.where(per_sample(rows, new), new, old) for old, new in pairs))


class _State(NamedTuple):
    """The samples that still climb; one row each."""

    rows: Tensor
    now: _Seen
    before: Tensor  # the point before
    best: _Seen
    step: Tensor
    climbed: Tensor  # steps since the last checkpoint that climbed
    checked_value: Tensor  # best value at the last checkpoint
    shortened: Tensor  # whether the last checkpoint made the step shorter
    entries: Tensor  # l1: share of entries that a step changes
    changed: Tensor  # l1: number of entries changed at the last checkpoint

    def only(self, left: Tensor) -> "_State":
        """The samples that are true in `left`."""
        rows, now, before, best, *others = self
        now, best = (_Seen(*(values[left] for values in seen)) for seen in (now, best))
        return _State(rows[left], now, before[left], best, *(values[left] for values in others))


@dataclass
class _Ascents:
    """All ascents of a batch, and what they have found so far."""

    model: nn.Module
    x: Tensor
    labels: Tensor
    norm: Norm
    epsilon: float
    steps: int
    known: Tensor
    early_stop: bool = False
    history: list[Tensor] | None = None

    def __post_init__(self) -> None:
        self.found = self.x.clone()
        self.margin = torch.full((len(self.x),), -torch.inf, device=self.x.device)
        self.gradients = 0
        self.zeros: int | Tensor = 0

    def climb(self, objective: Objective, start: Tensor, factor: float = 1.0, share: float = 1.0) -> Tensor:
        """One ascent of the samples that are not settled; returns the best point of each.

        It has a `share` of the steps, and `factor` times epsilon. Only points inside epsilon itself count as
        found, and only there a sample can be fooled.
        """
        ends = start.clone()
        epsilon, steps = factor * self.epsilon, max(1, round(share * self.steps))
        inside = factor == 1
        stop = inside and self.early_stop
        checks = checkpoints(steps)
        if self.norm == "l1":
            checks = list(range(0, steps, max(1, int(CHECK_EVERY * steps))))
        windows = {after: after - before for before, after in pairwise([0, *sorted(set(checks))])}
        rows = (self.known < 0).nonzero().squeeze(1)
        if not len(rows):
            return ends
        seen, wrong = self._look(objective, start[rows], rows, inside)
        state = self._begin(rows, seen, epsilon, fresh=factor == STAGES[0][0])
        for number in range(1, steps + 1):
            if stop:
                state = state.only(~wrong)
                if not len(state.rows):
                    break
            moved = self._moved(state, epsilon, first=number == 1)
            seen, wrong = self._look(objective, moved, state.rows, inside)
            state = state._replace(
                now=seen,
                before=state.now.point,
                best=state.best.but(seen.value > state.best.value, seen),
                climbed=state.climbed + (seen.value > state.now.value),
            )
            if self.history is not None and inside:
                line = torch.full((len(self.x),), torch.nan, device=self.x.device)
                line[state.rows] = state.best.value
                self.history.append(line)
            if number in windows:
                state = self._checked(state, PROGRESS * windows[number], epsilon)
            ends[state.rows] = state.best.point
        return ends

    def _look(self, objective: Objective, points: Tensor, rows: Tensor, inside: bool) -> tuple[_Seen, Tensor]:
        """Gradients and losses at these points, and which of them fool the network."""
        gradient, logits, values = objective_gradient(self.model, points, lambda z: objective(z, rows))
        self.gradients += len(rows)
        self.zeros += is_zero(gradient).sum()
        classes = logits.argmax(1)
        wrong = classes != self.labels[rows]
        if inside:
            margin = logit_margin(logits.float(), self.labels[rows])
            better = margin > self.margin[rows]
            self.found[rows[better]], self.margin[rows[better]] = points[better], margin[better]
        if inside and self.early_stop:
            self.known[rows[wrong]] = classes[wrong]
            # The first point that fools is the example, whatever its margin.
            self.found[rows[wrong]] = points[wrong]
        return _Seen(points, gradient, values.float()), wrong

    def _begin(self, rows: Tensor, seen: _Seen, epsilon: float, fresh: bool) -> _State:
        changed = (seen.point != self.x[rows]).flatten(1).float().mean(1)
        zeros = torch.zeros_like(seen.value)
        return _State(
            rows,
            now=seen,
            before=seen.point,
            best=seen,
            step=zeros + (epsilon if self.norm == "l1" else 2 * epsilon),
            climbed=zeros,
            checked_value=seen.value,
            shortened=zeros.bool(),
            entries=zeros + FIRST_ENTRIES if fresh else changed / SHRINK,
            changed=zeros + self.x[0].numel() if fresh else changed * self.x[0].numel(),
        )

    def _moved(self, state: _State, epsilon: float, first: bool) -> Tensor:
        """One step along the gradient and back into the ball; but in l1, mixed with the step before."""
        point, centre = state.now.point, self.x[state.rows]
        step = per_sample(state.step, point) * steepest(state.now.gradient, self.norm, state.entries)
        target = project(point + step, centre, epsilon, True, self.norm)
        if self.norm == "l1" or first:
            return target
        mixed = point + MOMENTUM * (target - point) + (1 - MOMENTUM) * (point - state.before)
        return project(mixed, centre, epsilon, True, self.norm)

    def _checked(self, state: _State, enough: float, epsilon: float) -> _State:
        """Adapt the step at a checkpoint, and send samples back to their best point.

        In l2 and linf the step is halved where it is too long, from the best point on: where too few steps
        climbed, or where neither step nor best value changed since before. In l1 the number of entries
        adapts to those of the best point: where they have become fewer, go back there with long steps; else
        make steps shorter.
        """
        if self.norm == "l1":
            changed = (state.best.point != self.x[state.rows]).flatten(1).sum(1).to(state.step)
            back = changed < 0.95 * state.changed
            shorter = (state.step / SHRINK).clamp_min(SMALLEST_STEP * epsilon)
            step = torch.where(back, torch.full_like(shorter, epsilon), shorter)
            entries = changed / self.x[0].numel() / SHRINK
            state = state._replace(step=step, entries=entries, changed=changed)
        else:
            stuck = ~state.shortened & (state.best.value <= state.checked_value)
            back = (state.climbed < enough) | stuck
            step, value = torch.where(back, state.step / 2, state.step), state.best.value
            climbed = torch.zeros_like(state.climbed)
            state = state._replace(step=step, climbed=climbed, checked_value=value, shortened=back)
        return state._replace(now=state.now.but(back, state.best))


class APGD(BallAttack):
    """Every epsilon has ascents of its own; a sample that a smaller one fooled has none."""

    loss: APGDLoss = "xent"
    steps: Count
    restarts: Count = 1
    targets: Count = 9

    @override
    def at_epsilon(self, model: nn.Module, seed: int) -> AtEpsilon:
        keys = self.model_dump(include={"steps", "norm", "loss", "restarts", "targets"})
        return partial(apgd_examples, model, seed=seed, **keys)
