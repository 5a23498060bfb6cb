"""Auto-PGD: gradient ascent that needs no step size (Croce & Hein, 2020; in l1: Croce & Hein, 2021)."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import BallAttack, Clean, Count
from lmsweep.attacks.balls import Norm, per_sample, project, random_points, steepest
from lmsweep.attacks.trajectory import (
    Examples,
    InputGradient,
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
    found = _Found(x.clone(), torch.full((len(x),), -torch.inf, device=x.device), known, history)
    for number, objective in enumerate(_objectives(model, x, labels, loss, restarts, targets)):
        # Drawn for the whole batch whatever is left of it, so that a sample's luck depends on no other.
        generator = torch.Generator().manual_seed(derive_seed(seed, f"apgd/{number}"))
        climb = partial(_climb, model, x, labels, objective, norm=norm, found=found)
        if norm != "l1":
            start = random_points(x, epsilon, norm, True, generator)
            climb(start, epsilon=epsilon, steps=steps, stop=early_stop)
            continue
        # Only the last stage is inside the ball, so only there can a sample be fooled.
        start = random_points(x, STAGES[0][0] * epsilon, norm, True, generator)
        for factor, share in STAGES:
            start = project(start, x, factor * epsilon, True, norm)
            start = climb(
                start,
                epsilon=factor * epsilon,
                steps=max(1, round(share * steps)),
                stop=early_stop and factor == 1,
                counts=factor == 1,
                fresh=factor == STAGES[0][0],
            )
    return Examples(found.x, found.known, found.gradients, found.zeros)


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


class _Found:
    """What all ascents of a batch have found so far."""

    def __init__(self, x: Tensor, margin: Tensor, known: Tensor, history: list[Tensor] | None) -> None:
        self.x, self.margin, self.known, self.history = x, margin, known, history
        self.gradients = 0
        self.zeros = torch.zeros((), dtype=torch.long, device=x.device)


class _State(NamedTuple):
    """The samples that still climb; one row each."""

    rows: Tensor
    centre: Tensor
    point: Tensor
    before: Tensor  # the point before
    gradient: Tensor
    value: Tensor
    best: Tensor
    best_gradient: Tensor
    best_value: Tensor
    step: Tensor
    climbed: Tensor  # steps since the last checkpoint that climbed
    checked_value: Tensor  # best value at the last checkpoint
    shortened: Tensor  # whether the last checkpoint made the step shorter
    entries: Tensor  # l1: share of entries that a step changes
    changed: Tensor  # l1: number of entries changed at the last checkpoint


def _climb(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    objective: Objective,
    start: Tensor,
    *,
    epsilon: float,
    steps: int,
    norm: Norm,
    found: _Found,
    stop: bool,
    counts: bool = True,
    fresh: bool = True,
) -> Tensor:
    """One ascent of the samples that are not settled; returns the best point of each.

    Points inside the ball are handed to `found`, unless `counts` says that they are outside. With `stop` a
    sample is left alone as soon as it is fooled.
    """
    ends = start.clone()
    checks = range(0, steps, max(1, int(CHECK_EVERY * steps))) if norm == "l1" else checkpoints(steps)
    windows = {after: after - before for before, after in pairwise([0, *sorted(set(checks))])}

    def look(points: Tensor, rows: Tensor) -> tuple[InputGradient, Tensor]:
        seen = objective_gradient(model, points, lambda logits: objective(logits, rows))
        found.gradients += len(rows)
        found.zeros += is_zero(seen.gradient).sum()
        if counts:
            margin = logit_margin(seen.logits.float(), labels[rows])
            better = margin > found.margin[rows]
            found.x[rows[better]], found.margin[rows[better]] = points[better], margin[better]
        wrong = seen.logits.argmax(1) != labels[rows]
        if stop:
            found.known[rows[wrong]] = seen.logits.argmax(1)[wrong]
            # The first point that fools is the example, whatever its margin.
            found.x[rows[wrong]] = points[wrong]
        return seen, wrong

    rows = (found.known < 0).nonzero().squeeze(1)
    if not len(rows):
        return ends
    seen, wrong = look(start[rows], rows)
    state = _begin(rows, x, start, seen, epsilon, norm, fresh)
    for number in range(1, steps + 1):
        if stop:
            state = _State(*(values[~wrong] for values in state))
            if not len(state.rows):
                break
        moved = _moved(state, epsilon, norm, first=number == 1)
        seen, wrong = look(moved, state.rows)
        state = _arrived(state, moved, seen)
        if found.history is not None and counts:
            line = torch.full((len(x),), torch.nan, device=x.device)
            line[state.rows] = state.best_value
            found.history.append(line)
        if number in windows:
            state = _checked(state, PROGRESS * windows[number], epsilon, norm)
        ends[state.rows] = state.best
    return ends


def _begin(
    rows: Tensor, x: Tensor, start: Tensor, seen: InputGradient, epsilon: float, norm: Norm, fresh: bool
) -> _State:
    values = seen.values.float()
    changed = (start != x)[rows].flatten(1).float().mean(1)
    zeros = torch.zeros_like(values)
    return _State(
        rows,
        x[rows],
        start[rows],
        start[rows],
        seen.gradient,
        values,
        start[rows],
        seen.gradient,
        values,
        step=zeros + (epsilon if norm == "l1" else 2 * epsilon),
        climbed=zeros,
        checked_value=values,
        shortened=zeros.bool(),
        entries=zeros + FIRST_ENTRIES if fresh else changed / SHRINK,
        changed=zeros + x[0].numel() if fresh else changed * x[0].numel(),
    )


def _moved(state: _State, epsilon: float, norm: Norm, first: bool) -> Tensor:
    """One step along the gradient and back into the ball; but in l1, mixed with the step before."""
    step = per_sample(state.step, state.point) * steepest(state.gradient, norm, state.entries)
    target = project(state.point + step, state.centre, epsilon, True, norm)
    if norm == "l1" or first:
        return target
    inertia = (1 - MOMENTUM) * (state.point - state.before)
    mixed = state.point + MOMENTUM * (target - state.point) + inertia
    return project(mixed, state.centre, epsilon, True, norm)


def _arrived(state: _State, moved: Tensor, seen: InputGradient) -> _State:
    values = seen.values.float()
    better = values > state.best_value
    wide = per_sample(better, moved)
    return state._replace(
        point=moved,
        before=state.point,
        gradient=seen.gradient,
        value=values,
        best=torch.where(wide, moved, state.best),
        best_gradient=torch.where(wide, seen.gradient, state.best_gradient),
        best_value=torch.where(better, values, state.best_value),
        climbed=state.climbed + (values > state.value),
    )


def _checked(state: _State, enough: float, epsilon: float, norm: Norm) -> _State:
    """Adapt the step at a checkpoint, and send samples back to their best point.

    In l2 and linf the step is halved where it is too long, from the best point on: where too few steps
    climbed, or where neither step nor best value changed since before. In l1 the number of entries adapts to
    those of the best point: where they have become fewer, go back there with long steps; else make steps
    shorter.
    """
    if norm == "l1":
        changed = (state.best != state.centre).flatten(1).sum(1).to(state.step)
        back = changed < 0.95 * state.changed
        shorter = (state.step / SHRINK).clamp_min(SMALLEST_STEP * epsilon)
        step = torch.where(back, torch.full_like(shorter, epsilon), shorter)
        entries = changed / state.centre[0].numel() / SHRINK
        state = state._replace(step=step, entries=entries, changed=changed)
    else:
        stuck = ~state.shortened & (state.best_value <= state.checked_value)
        back = (state.climbed < enough) | stuck
        step, value = torch.where(back, state.step / 2, state.step), state.best_value
        climbed = torch.zeros_like(state.climbed)
        state = state._replace(step=step, climbed=climbed, checked_value=value, shortened=back)
    wide = per_sample(back, state.point)
    return state._replace(
        point=torch.where(wide, state.best, state.point),
        gradient=torch.where(wide, state.best_gradient, state.gradient),
        value=torch.where(back, state.best_value, state.value),
    )


class APGD(BallAttack):
    """Every epsilon has ascents of its own; a sample that a smaller one fooled has none."""

    loss: Annotated[APGDLoss, Field(description="xent, log_odds, margin, dlr or dlr_targeted")] = "xent"
    steps: Count
    restarts: Count = 1
    targets: Count = 9

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        keys = self.model_dump(include={"steps", "loss", "restarts", "targets"})
        return self.nested(partial(apgd_examples, model, seed=seed, **keys), clean, early_stop)
