"""AutoAttack itself (Croce & Hein, 2020), from the package pyautoattack: the oracle for our own ensemble."""

import logging
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import AtEpsilon, BallAttack
from lmsweep.attacks.balls import Norm
from lmsweep.attacks.trajectory import Examples
from lmsweep.errors import UserError

NAMES: dict[Norm, str] = {"l1": "L1", "l2": "L2", "linf": "Linf"}


class AutoAttack(BallAttack):
    """One evaluation per epsilon, of the samples that no smaller one fooled."""

    transfers = False
    always_stops = True

    version: Literal["standard", "plus", "rand"] = "standard"

    @override
    def at_epsilon(self, model: nn.Module, seed: int) -> AtEpsilon:
        def attack(x: Tensor, labels: Tensor, *, epsilon: float, settled: Tensor, **_: object) -> Examples:
            rows = (settled < 0).nonzero().squeeze(1)
            if epsilon == 0 or not len(rows):
                return Examples(x, settled)
            best, known = x.clone(), settled.clone()
            best[rows] = self._reference(model, x[rows], labels[rows], epsilon, seed)
            with torch.no_grad():
                classes = model(best[rows]).argmax(1)
            known[rows] = torch.where(classes != labels[rows], classes, -1)
            return Examples(best, known)

        return attack

    def _reference(self, model: nn.Module, x: Tensor, labels: Tensor, epsilon: float, seed: int) -> Tensor:
        try:
            from pyautoattack import AutoAttack as Reference
        except ImportError:
            raise UserError(
                "attack=autoattack needs the package pyautoattack: pip install lmsweep[autoattack]"
            ) from None
        logging.getLogger("auto-attack").setLevel(logging.ERROR)
        options = {"norm": NAMES[self.norm], "version": self.version, "seed": seed % 2**31}
        with torch.random.fork_rng():  # AutoAttack seeds torch's own generator
            reference = Reference(model, eps=epsilon, device=x.device, **options)
            found = reference.run_standard_evaluation(x, labels, batch_size=len(x))
        return found[0] if isinstance(found, tuple) else found
