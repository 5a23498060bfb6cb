"""The smallest perturbation that changes the class of a sample; foolbox searches for it."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import AtEpsilon, BallAttack, Clean, Count
from lmsweep.attacks.balls import ORDERS, Norm, lengths, per_sample, project
from lmsweep.attacks.trajectory import Examples, unsettled
from lmsweep.margin import margin_distance
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed

DEEPFOOL_STEPS = 50


def minimal_examples(
    model: nn.Module, x: Tensor, y: Tensor, *, norm: Norm, steps: int = 200, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The nearest image of another class that was found for each sample, and its distance in `norm`.

    The distance is an upper bound of the true one: 0 where the clean image is misclassified, infinite where
    nothing was found, which keeps its image. The network is left untouched, and so is torch's generator.

    l2 takes the better of DDN (Rony et al., 2019) and DeepFool (Moosavi-Dezfooli et al., 2016): foolbox
    3.3.4's FMN never projects in l2, because its factor divides a norm by itself. linf takes the better of
    FMN (Pintor et al., 2021) and DeepFool. l1 takes FMN three times: from the image alone it finds nothing
    for about a fifth of the digits, so it also starts from DDN's result; and it heads for the best-scored
    class, which need not be the nearest, so it is also sent to the class that is nearest by Eq. 7.
    """
    if norm not in ORDERS:
        raise ValueError(f"norm={norm!r} is not allowed: it must be one of {', '.join(ORDERS)}")
    images, best = x.clone(), torch.zeros(len(x), device=x.device)
    # DDN draws from torch's global generator where a gradient is zero.
    with frozen(model), torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(derive_seed(seed, "minimal norm"))
        right = ~_wrong(model, x, y)
        if not model(x[:1].detach().requires_grad_()).requires_grad:
            best[right] = torch.inf  # a network without any gradient, which all these attacks follow
        elif bool(right.any()):
            images[right], best[right] = _search(model, x[right], y[right], norm, steps)
    return images, best


def _search(model: nn.Module, x: Tensor, y: Tensor, norm: Norm, steps: int) -> tuple[Tensor, Tensor]:
    """The nearest that any of the norm's attacks finds, for samples that are classified correctly."""
    import eagerpy
    from foolbox import PyTorchModel, TargetedMisclassification
    from foolbox import attacks as fa

    wrapped = PyTorchModel(model, bounds=(0.0, 1.0), device=x.device)
    images, best = x.clone(), torch.full((len(x),), torch.inf, device=x.device)

    def take(found: Tensor, rows: Tensor) -> None:
        found = found.clamp(0.0, 1.0)
        nearer = _wrong(model, found, y[rows]) & (lengths(found - x[rows], norm) < best[rows])
        images[rows[nearer]] = found[nearer]
        best[rows[nearer]] = lengths(found - x[rows], norm)[nearer]

    everyone = torch.arange(len(x), device=x.device)
    attacks: dict[Norm, list[Any]] = {
        "l1": [fa.L1FMNAttack(steps=steps)],
        "l2": [fa.DDNAttack(steps=steps), fa.L2DeepFoolAttack(steps=min(steps, DEEPFOOL_STEPS))],
        "linf": [fa.LInfFMNAttack(steps=steps), fa.LinfDeepFoolAttack(steps=min(steps, DEEPFOOL_STEPS))],
    }
    for attack in attacks[norm]:
        take(attack.run(wrapped, x, y), everyone)
    if norm == "l1":
        nearest = TargetedMisclassification(class_distances(model, x, y, norm).argmin(1))
        take(attacks["l1"][0].run(wrapped, x, nearest), everyone)
        start = attacks["l2"][0].run(wrapped, x, y)
        rows = _wrong(model, start, y).nonzero().squeeze(1)
        if len(rows):
            points = eagerpy.astensor(start[rows])
            take(attacks["l1"][0].run(wrapped, x[rows], y[rows], starting_points=points), rows)
    return images, best


def class_distances(model: nn.Module, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
    """The signed linearised distance (Eq. 7) of each image to every class boundary: (batch, classes)."""
    with frozen(model), torch.enable_grad():
        x = x.detach().requires_grad_()
        return margin_distance(model(x), y, [x], norm=ORDERS[norm]).detach().squeeze(2)


@torch.no_grad()
def _wrong(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    wrong: Tensor = model(x).argmax(1) != y
    return wrong


class MinimalNorm(BallAttack):
    """DDN, FMN and DeepFool; an example counts for every ball that it lies in."""

    steps: Count

    @override
    def at_epsilon(self, model: nn.Module, seed: int) -> AtEpsilon:
        once: list[Tensor] = []  # for the samples that are left at first; those left later are among them

        def attack(x: Tensor, labels: Tensor, *, epsilon: float, settled: Tensor, **_: object) -> Examples:
            if epsilon == 0:
                return Examples(x, settled)
            if not once:
                once.extend(self._nearest(model, x, labels, settled < 0, seed))
            images, distances, classes = once
            reached = (settled < 0) & (distances <= epsilon)
            changed = torch.where(per_sample(reached, x), images, x)
            return Examples(changed, torch.where(reached, classes, settled))

        return attack

    def _nearest(
        self, model: nn.Module, x: Tensor, labels: Tensor, rows: Tensor, seed: int
    ) -> Sequence[Tensor]:
        """For these rows the nearest images of other classes, their distances and their classes."""
        images, classes = x.clone(), labels.clone()
        distances = torch.full((len(x),), torch.inf, device=x.device)
        images[rows], distances[rows] = minimal_examples(
            model, x[rows], labels[rows], norm=self.norm, steps=self.steps, seed=seed
        )
        with torch.no_grad():
            classes[rows] = model(images[rows]).argmax(1)
        return images, distances.masked_fill(classes == labels, torch.inf), classes

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        images, distances = minimal_examples(
            model, clean.x, clean.y, norm=self.norm, steps=self.steps, seed=seed
        )
        for epsilon in self.strengths:
            # Where the nearest example is farther away, the point of the ball towards it.
            towards = project(images, clean.x, epsilon, True, self.norm)
            yield unsettled(torch.where(per_sample(distances <= epsilon, images), images, towards))
