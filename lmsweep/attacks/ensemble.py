"""The worst case over several attacks for each image, as AutoAttack composes it (Croce & Hein, 2020).

APGD on three losses, one of them towards every other class, a search for the smallest perturbation, and a
search without gradients. An image that one attack has fooled is left alone by the others.
"""

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.apgd import APGD
from lmsweep.attacks.attack import AtEpsilon, BallAttack, Count
from lmsweep.attacks.balls import per_sample
from lmsweep.attacks.minimal import MinimalNorm
from lmsweep.attacks.search import RandomSearch
from lmsweep.attacks.trajectory import Examples


class Ensemble(BallAttack):
    """All attacks in turn on what is left, from the smallest epsilon on."""

    transfers = False
    always_stops = True

    apgd_steps: Count
    restarts: Count = 1
    targets: Count = 9
    minimal_steps: Count
    queries: Count

    def members(self) -> dict[str, BallAttack | RandomSearch]:
        """Every attack by itself."""
        ball: dict[str, Any] = {"epsilons": self.epsilons, "norm": self.norm}
        ascent = {**ball, "steps": self.apgd_steps, "restarts": self.restarts}
        found: dict[str, BallAttack | RandomSearch] = {
            "apgd_margin": APGD(**ascent, loss="margin"),
            "apgd_xent": APGD(**ascent, loss="xent"),
            "minimal": MinimalNorm(**ball, steps=self.minimal_steps),
            "apgd_targeted": APGD(**ascent, loss="dlr_targeted", targets=self.targets),
        }
        if self.norm == "linf":
            found["search"] = RandomSearch(epsilons=self.epsilons, queries=self.queries)
        return found

    @override
    def at_epsilon(self, model: nn.Module, seed: int) -> AtEpsilon:
        attacks = [member.at_epsilon(model, seed) for member in self.members().values()]

        def one_after_another(x: Tensor, labels: Tensor, *, settled: Tensor, **options: Any) -> Examples:
            """Let each attack try the samples that those before it did not settle."""
            found = Examples(x, settled)
            for attack in attacks:
                left = found.settled < 0
                if not bool(left.any()):
                    break
                new = attack(x, labels, settled=found.settled, **options)
                found = new._replace(x=torch.where(per_sample(left, x), new.x, found.x)).after(found)
            return found

        return one_after_another
