"""What an attack over a range of strengths is: one batch in, one set of examples per strength out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from lmsweep.attacks.trajectory import Examples, fooled

Target = Literal["none", "least_likely"]


@dataclass(frozen=True)
class Clean:
    """A batch and what the attacked network says about it before any attack."""

    x: Tensor
    y: Tensor
    logits: Tensor

    def aim(self, target: Target) -> tuple[Tensor, bool]:
        """The labels to climb away from, or with a target (the least likely wrong class) those to go to."""
        if target == "none":
            return self.y, False
        # The true class can be the least likely one; going there would help the network.
        return self.logits.scatter(1, self.y.unsqueeze(1), torch.inf).argmin(1), True

    def settled(self, labels: Tensor, targeted: bool, early_stop: bool) -> Tensor | None:
        """With early stop, samples that the clean image fools need no attack: their class, else -1."""
        if not early_stop:
            return None
        classes = self.logits.argmax(1)
        return torch.where(fooled(self.logits, labels, targeted), classes, -1)


class Attack(Protocol):
    """Anything that turns a batch into examples of several strengths; `model` is inside `frozen`."""

    @property
    def strengths(self) -> tuple[float, ...]:
        """Epsilons, standard deviations or SNRs, in the order of the examples."""

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the examples for each strength."""
