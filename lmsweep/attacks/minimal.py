"""The search for the smallest perturbation as an attack: one search answers for every epsilon."""

from collections.abc import Iterator

import torch
from torch import nn
from typing_extensions import override

from lmsweep.attacks.attack import BallAttack, Clean, Count
from lmsweep.attacks.balls import per_sample, project
from lmsweep.attacks.measures.distances import minimal_examples
from lmsweep.attacks.trajectory import Examples, unsettled


class MinimalNorm(BallAttack):
    """DDN, FMN and DeepFool; an example counts for every ball that it lies in."""

    steps: Count

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        images, distances = minimal_examples(
            model, clean.x, clean.y, norm=self.norm, steps=self.steps, seed=seed
        )
        for epsilon in self.strengths:
            # Where the nearest example is farther away, the point of the ball towards it.
            towards = project(images, clean.x, epsilon, True, self.norm)
            yield unsettled(torch.where(per_sample(distances <= epsilon, images), images, towards))
