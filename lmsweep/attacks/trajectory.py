"""Sign-gradient ascent inside a ball: the one loop under IFGSM and PGD.

Several epsilons can share one trajectory. IFGSM with step alpha takes k = ceil(epsilon / alpha) steps, and no
point before the last can lie farther than (k - 1) * alpha <= epsilon from the image, so clipping to the ball
acts on the last step only: the attacks for all epsilons are the same path, left at different steps.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmsweep.attacks.gradient import AttackLoss, input_gradient, is_zero


class Stop(NamedTuple):
    """Where to leave a trajectory: after so many steps, clipped to this ball."""

    epsilon: float | Tensor
    steps: int


class Examples(NamedTuple):
    """What an attack of one strength found for a batch."""

    x: Tensor
    settled: Tensor  # the class predicted for `x` where it is known already, else -1
    gradients: int = 0  # how many were computed on the way
    zero_gradients: int | Tensor = 0  # how many of them were exactly zero; on the device until read


def unsettled(x: Tensor, gradients: int = 0, zero_gradients: int | Tensor = 0) -> Examples:
    """Examples whose predictions have not been looked at."""
    return Examples(
        x, torch.full((len(x),), -1, dtype=torch.long, device=x.device), gradients, zero_gradients
    )


def project(x: Tensor, centre: Tensor, epsilon: float | Tensor, clip_pixels: bool) -> Tensor:
    """Clip each pixel to within epsilon of `centre` (the paper's Clip), and to [0, 1] when asked."""
    x = torch.minimum(torch.maximum(x, centre - epsilon), centre + epsilon)
    return x.clamp(0.0, 1.0) if clip_pixels else x


def fooled(logits: Tensor, labels: Tensor, targeted: bool) -> Tensor:
    """Whether the attack has what it wants: another class than the label, or the target class."""
    return (logits.argmax(1) == labels) == targeted


@torch.no_grad()
def predictions(model: nn.Module, examples: Examples) -> Tensor:
    """The class of every example; only those that are not known yet go through the network."""
    classes = examples.settled.clone()
    rows = (classes < 0).nonzero().squeeze(1)
    if len(rows):
        classes[rows] = model(examples.x[rows]).argmax(1)
    return classes


def trajectory(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    stops: Sequence[Stop],
    *,
    alpha: float | Tensor,
    loss: AttackLoss,
    targeted: bool,
    clip_pixels: bool,
    start: Tensor | None = None,
    settled: Tensor | None = None,
    early_stop: bool = False,
) -> Iterator[Examples]:
    """Yield the examples at each of the `stops`, which come in order of their steps.

    More than one stop is only right when every stop but the widest has (steps - 1) * alpha <= epsilon. With
    `early_stop` a sample stays at the first point that fools the network, and costs nothing from there on;
    `settled` says which samples have been given up before (their prediction, else -1). Without either nothing
    here waits for the device. Call it inside `frozen`.
    """
    sign = -1.0 if targeted else 1.0
    point = (x if start is None else start).clone()
    known = unsettled(x).settled if settled is None else settled.clone()
    everyone = settled is None and not early_stop
    rows = torch.arange(len(x), device=x.device) if everyone else (known < 0).nonzero().squeeze(1)
    widest = stops[-1].epsilon
    count = step = 0
    zeros = torch.zeros((), dtype=torch.long, device=x.device)
    for stop in stops:
        while step < stop.steps and len(rows):
            alive: Tensor | slice = slice(None) if everyone else rows
            gradient, logits = input_gradient(model, point[alive], labels[alive], loss)
            count += len(rows)
            zeros = zeros + is_zero(gradient).sum()
            if early_stop:
                done = fooled(logits, labels[rows], targeted)
                known[rows[done]] = logits.argmax(1)[done]
                gradient, rows = gradient[~done], rows[~done]
                alive = rows
            moved = point[alive] + sign * _rows(alpha, alive) * gradient.sign()
            point[alive] = project(moved, x[alive], _rows(widest, alive), clip_pixels)
            step += 1
        # Balls are nested, so clipping to the widest on the way and to this one now is clipping to this one.
        yield Examples(project(point, x, stop.epsilon, clip_pixels), known.clone(), count, zeros)


def _rows(value: float | Tensor, rows: Tensor | slice) -> float | Tensor:
    return value[rows] if isinstance(value, Tensor) else value
