"""What gradient attacks share: the losses they climb, steps along the gradient, and SNR budgets.

`trajectory` is the one loop under IFGSM and PGD, and several epsilons can share one trajectory. IFGSM with
step alpha takes k = ceil(epsilon / alpha) steps, and no point before the last can lie farther than (k - 1) *
alpha <= epsilon from the image, so clipping to the ball acts on the last step only: the attacks for all
epsilons are the same path, left at different steps.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Concatenate, Literal, NamedTuple, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmsweep.attacks.balls import Norm, per_sample, project, steepest
from lmsweep.margin.temporary import frozen

P = ParamSpec("P")
AttackLoss = Literal["xent", "log_odds", "margin", "dlr"]


def attack_loss(logits: Tensor, labels: Tensor, loss: AttackLoss) -> Tensor:
    """Return one value per sample that grows as the network moves away from `labels`.

    In float32 the gradient of cross-entropy is exactly zero once the other classes' probabilities
    underflow, about 104 below in logits, and its sign then moves nothing. The log odds against the label are
    log(exp(cross-entropy) - 1): they grow where cross-entropy grows, so the sign of their gradient is what
    the sign of cross-entropy's is without rounding, however far the label leads. The logit margin (best other
    class minus the label's, as in Carlini & Wagner, 2017) has a gradient wherever the network has one, and so
    has the difference of logits ratio, which a factor before all logits does not change either.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not allowed: it must be one of {', '.join(LOSSES)}")
    return LOSSES[loss](logits if logits.dtype == torch.float64 else logits.float(), labels)


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Best other logit minus the label's: positive where the network does not answer with the label."""
    column = labels.unsqueeze(1)
    other = logits.scatter(1, column, -torch.inf).amax(1)
    return other - logits.gather(1, column).squeeze(1)


def soft_logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The log odds against the label: log sum over other classes of exp z, minus the label's z.

    It is a smooth bound on the logit margin.
    """
    column = labels.unsqueeze(1)
    return logits.scatter(1, column, -torch.inf).logsumexp(1) - logits.gather(1, column).squeeze(1)


def logits_ratio(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """The difference of logits ratio (DLR) of Croce & Hein, 2020.

    It is the logit margin in units of the distance between the first and the third logit. With `targets` it
    is the lead of the target class over the label's, in units of the distance between the first logit and the
    mean of the third and fourth. Of fewer than three or four classes the last one is taken.
    """
    order = logits.sort(1, descending=True).values
    last = logits.shape[1] - 1
    third, fourth = order[:, min(2, last)], order[:, min(3, last)]
    if targets is None:
        return logit_margin(logits, labels) / (order[:, 0] - third + 1e-12)
    lead = (logits.gather(1, targets.unsqueeze(1)) - logits.gather(1, labels.unsqueeze(1))).squeeze(1)
    return lead / (order[:, 0] - (third + fourth) / 2 + 1e-12)


LOSSES: dict[AttackLoss, Callable[[Tensor, Tensor], Tensor]] = {
    "xent": functools.partial(F.cross_entropy, reduction="none"),
    "log_odds": soft_logit_margin,
    "margin": logit_margin,
    "dlr": logits_ratio,
}


class InputGradient(NamedTuple):
    """The gradient of what an attack climbs, and the logits and values of the same forward pass."""

    gradient: Tensor
    logits: Tensor
    values: Tensor


def input_gradient(model: nn.Module, x: Tensor, labels: Tensor, loss: AttackLoss) -> InputGradient:
    """Differentiate the attack's loss with respect to each sample; call it inside `frozen`."""
    return objective_gradient(model, x, lambda logits: attack_loss(logits, labels, loss))


def objective_gradient(model: nn.Module, x: Tensor, objective: Callable[[Tensor], Tensor]) -> InputGradient:
    """Differentiate any function of the logits, one value per sample, with respect to each sample.

    A network that cuts the graph somewhere (a rounding, an argmax) has gradient zero, as it has in theory.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(x)
        values = objective(logits)
        if not logits.requires_grad:
            return InputGradient(torch.zeros_like(x), logits, values)
        (gradient,) = torch.autograd.grad(values.sum(), x)
    return InputGradient(gradient, logits.detach(), values.detach())


def is_zero(gradient: Tensor) -> Tensor:
    """Which samples have a gradient that is exactly zero in every pixel: its sign moves them nowhere."""
    return (gradient == 0).flatten(1).all(1)


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

    def after(self, earlier: "Examples") -> "Examples":
        """The same examples, with the gradients on the way to earlier ones counted too."""
        zeros = earlier.zero_gradients + self.zero_gradients
        return self._replace(gradients=earlier.gradients + self.gradients, zero_gradients=zeros)


def unsettled(x: Tensor) -> Examples:
    """Examples whose predictions have not been looked at."""
    return Examples(x, torch.full((len(x),), -1, dtype=torch.long, device=x.device))


def standalone(
    attack: Callable[Concatenate[nn.Module, P], Examples],
) -> Callable[Concatenate[nn.Module, P], Tensor]:
    """Turn `attack` into a function for any network, which stays as it was; it returns the images alone."""

    @functools.wraps(attack)
    def images(model: nn.Module, *arguments: P.args, **options: P.kwargs) -> Tensor:
        with frozen(model):
            return attack(model, *arguments, **options).x

    return images


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
    norm: Norm = "linf",
    start: Tensor | None = None,
    settled: Tensor | None = None,
    early_stop: bool = False,
) -> Iterator[Examples]:
    """Yield the examples at each of the `stops`, which come in order of their steps.

    More than one stop is only right when every stop but the widest has (steps - 1) * alpha <= epsilon. With
    `early_stop` a sample stays at the first point that fools the network, and costs nothing from there on;
    `settled` says which samples have been given up before (their prediction, else -1). Without these two,
    nothing here waits for the device. Call it inside `frozen`.
    """
    sign = -1.0 if targeted else 1.0
    point = (x if start is None else start).clone()
    known = unsettled(x).settled if settled is None else settled.clone()
    everyone = settled is None and not early_stop
    rows = torch.arange(len(x), device=x.device) if everyone else (known < 0).nonzero().squeeze(1)
    widest = stops[-1].epsilon
    count = step = 0
    zeros: int | Tensor = 0
    for stop in stops:
        while step < stop.steps and len(rows):
            alive: Tensor | slice = slice(None) if everyone else rows
            gradient, logits, _ = input_gradient(model, point[alive], labels[alive], loss)
            count += len(rows)
            zeros = zeros + is_zero(gradient).sum()
            if early_stop:
                done = fooled(logits, labels[rows], targeted)
                known[rows[done]] = logits.argmax(1)[done]
                gradient, rows = gradient[~done], rows[~done]
                alive = rows
            moved = point[alive] + sign * _rows(alpha, alive) * steepest(gradient, norm)
            point[alive] = project(moved, x[alive], _rows(widest, alive), clip_pixels, norm)
            step += 1
        # Balls are nested, so clipping to the widest on the way and to this one now is clipping to this one.
        yield Examples(project(point, x, stop.epsilon, clip_pixels, norm), known.clone(), count, zeros)


def _rows(value: float | Tensor, rows: Tensor | slice) -> float | Tensor:
    return value[rows] if isinstance(value, Tensor) else value


# Budgets by signal-to-noise ratio, in decibels as for Parseval networks (Cisse et al., 2017):
# SNR(x, delta) = 20 log10(|x| / |delta|) in l2 norms, so 33 dB is a perturbation of 2.2% of the image's norm.
BISECTIONS = 50


def snr(x: Tensor, perturbed: Tensor) -> Tensor:
    """The signal-to-noise ratio of each sample in dB; infinite where nothing was changed."""
    signal = x.double().flatten(1).norm(dim=1)
    noise = (perturbed.double() - x.double()).flatten(1).norm(dim=1)
    return 20 * torch.log10(signal / noise)


def scale_to_snr(x: Tensor, direction: Tensor, target: float, *, clip_pixels: bool) -> Tensor:
    """Return one factor t per sample, such that the SNR of x + t * direction is `target` dB.

    With pixel clipping the perturbation that is left grows with t more slowly and has no closed form, so t is
    found by bisection. A sample whose direction cannot reach the budget, because all its pixels are at their
    bounds before, gets the smallest factor that takes them there; one whose direction is zero gets 0.
    """
    start, steps = x.double(), direction.double()
    size = per_sample(steps.flatten(1).abs().amax(1), x)
    wanted = start.flatten(1).norm(dim=1) * 10 ** (-target / 20)
    if not clip_pixels:
        factor = wanted / steps.flatten(1).norm(dim=1)
        return torch.where(size.flatten() > 0, factor, 0.0).to(x.dtype)
    # At this factor every pixel that moves at all has met its bound.
    moving = steps.abs().masked_fill(steps == 0, torch.inf).flatten(1).amin(1)
    high = torch.where(size.flatten() > 0, 1.0 / moving, 0.0)
    low = torch.zeros_like(high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        moved = (start + per_sample(middle, x) * steps).clamp(0.0, 1.0)
        enough = (moved - start).flatten(1).norm(dim=1) >= wanted
        high, low = torch.where(enough, middle, high), torch.where(enough, low, middle)
    return high.to(x.dtype)
