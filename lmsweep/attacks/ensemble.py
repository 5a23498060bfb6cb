"""The worst case over several attacks for each image, as AutoAttack composes it (Croce & Hein, 2020).

APGD on three losses, one of them towards every other class, a search for the smallest perturbation, and a
search without gradients. An image that one attack has fooled is left alone by the others.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.apgd import APGD, apgd_examples
from lmsweep.attacks.attack import Attack, BallAttack, Clean, Count
from lmsweep.attacks.balls import Norm, per_sample
from lmsweep.attacks.minimal import MinimalNorm, minimal_examples
from lmsweep.attacks.search import RandomSearch, search_examples
from lmsweep.attacks.trajectory import Examples


class Ensemble(BallAttack):
    """All attacks in turn on what is left, from the smallest epsilon on; it always stops early."""

    transfers = False

    apgd_steps: Count
    restarts: Count = 1
    targets: Count = 9
    minimal_steps: Count
    queries: Count

    def members(self) -> dict[str, Attack]:
        """Every attack by itself."""
        ball: dict[str, Any] = {"epsilons": self.epsilons, "norm": self.norm}
        ascent = {**ball, "steps": self.apgd_steps, "restarts": self.restarts}
        found: dict[str, Attack] = {
            "apgd_margin": APGD(**ascent, loss="margin"),
            "apgd_xent": APGD(**ascent, loss="xent"),
            "minimal": MinimalNorm(**ball, steps=self.minimal_steps),
            "apgd_targeted": APGD(**ascent, loss="dlr_targeted", targets=self.targets),
        }
        if self.norm == "linf":
            found["search"] = RandomSearch(epsilons=self.epsilons, queries=self.queries)
        return found

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        ascend = partial(apgd_examples, model, steps=self.apgd_steps, restarts=self.restarts, seed=seed)
        attacks: list[Callable[..., Examples]] = [
            partial(ascend, loss="margin"),
            partial(ascend, loss="xent"),
            _Nearest(model, self.minimal_steps, seed),
            partial(ascend, loss="dlr_targeted", targets=self.targets),
        ]
        if self.norm == "linf":
            search = partial(search_examples, model, queries=self.queries, seed=seed)
            attacks.append(lambda *data, norm, **options: search(*data, **options))  # noqa: ARG005 - it is linf

        def one_after_another(x: Tensor, labels: Tensor, *, settled: Tensor, **options: object) -> Examples:
            """Let each attack try the samples that those before it did not settle."""
            best, known = x.clone(), settled
            gradients, zeros = 0, torch.zeros((), dtype=torch.long, device=x.device)
            for attack in attacks:
                open_ = known < 0
                if not bool(open_.any()):
                    break
                found = attack(x, labels, settled=known, **options)
                best = torch.where(per_sample(open_, x), found.x, best)
                known = found.settled
                gradients, zeros = gradients + found.gradients, zeros + found.zero_gradients
            return Examples(best, known, gradients, zeros)

        return self.nested(one_after_another, clean, early_stop=True)


class _Nearest:
    """The search for the smallest perturbation, once for all epsilons.

    It is made for the samples that are left when it is first needed; later ones are among them.
    """

    def __init__(self, model: nn.Module, steps: int, seed: int) -> None:
        self.model, self.steps, self.seed = model, steps, seed
        self.found: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(
        self, x: Tensor, labels: Tensor, *, epsilon: float, norm: Norm, settled: Tensor, early_stop: bool
    ) -> Examples:
        if epsilon == 0:
            return Examples(x, settled)
        images, distances, classes = self.found = self.found or self._search(x, labels, norm, settled < 0)
        reached = (settled < 0) & (distances <= epsilon)
        changed = torch.where(per_sample(reached, x), images, x)
        return Examples(changed, torch.where(reached, classes, settled))

    def _search(self, x: Tensor, labels: Tensor, norm: Norm, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        images, classes = x.clone(), labels.clone()
        distances = torch.full((len(x),), torch.inf, device=x.device)
        images[rows], distances[rows] = minimal_examples(
            self.model, x[rows], labels[rows], norm=norm, steps=self.steps, seed=self.seed
        )
        with torch.no_grad():
            classes[rows] = self.model(images[rows]).argmax(1)
        return images, distances.masked_fill(classes == labels, torch.inf), classes
