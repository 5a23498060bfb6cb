"""A gradient-free attack: random search over squares (after the Square Attack, Andriushchenko et al., 2020).

It only compares logits, so what it breaks was never protected by more than the lack of a gradient.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.attack import AimedAttack, AtEpsilon, Clean, Count
from lmsweep.attacks.balls import per_sample, project
from lmsweep.attacks.trajectory import Examples, fooled, logit_margin, standalone, unsettled
from lmsweep.seeds import derive_seed

# The schedule of the square attack (Andriushchenko et al., 2020): the share of pixels that a proposal
# repaints at the start, and the queries out of 10,000 after which it is halved. Fewer queries rescale the
# schedule.
FIRST_SHARE = 0.8
HALVINGS = tuple(number / 10_000 for number in (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000))


@torch.no_grad()
def search_examples(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    queries: int,
    seed: int = 0,
    targeted: bool = False,
    clip_pixels: bool = True,
    settled: Tensor | None = None,
    early_stop: bool = False,
) -> Examples:
    """Return the example with the largest logit margin that `queries` random proposals found.

    The attack begins with stripes of +-epsilon; a proposal repaints one rectangle per sample with +-epsilon,
    one sign per channel, and stays when it comes nearer to what is wanted, also after it fools the network.
    `settled` and `early_stop` are those of `trajectory`, the other arguments those of `fgsm`. Examples that
    are for another network must not stop early. Call it inside `frozen`; `random_search` does so by itself.
    """
    known = unsettled(x).settled if settled is None else settled.clone()
    if epsilon == 0 or queries < 1:
        return Examples(x, known)
    generator = torch.Generator().manual_seed(derive_seed(seed, "random search"))
    # Inputs that are no images count as one row of pixels.
    images = x if x.ndim == 4 else x.flatten(1)[:, None, None]
    best = images.clone()
    # float64 holds the logits of every network exactly.
    best_margin = torch.full((len(x),), -torch.inf, device=x.device, dtype=torch.float64)
    for query in range(queries):
        # Drawn for the whole batch whatever is left of it, so that a sample's luck depends on no other.
        painted, signs = _proposal(images, query, queries, generator)
        alive = (known < 0).nonzero().squeeze(1)
        if not len(alive):
            break
        paint = images[alive] + epsilon * signs[alive]
        candidate = torch.where(painted[alive], paint, best[alive])
        candidate = project(candidate, images[alive], epsilon, clip_pixels)
        logits = model(candidate.reshape(len(alive), *x.shape[1:]))
        margin = logit_margin(logits, labels[alive]).double()
        margin = -margin if targeted else margin
        better = margin > best_margin[alive]
        best[alive] = torch.where(per_sample(better, candidate), candidate, best[alive])
        best_margin[alive] = torch.where(better, margin, best_margin[alive])
        if early_stop:
            done = better & fooled(logits, labels[alive], targeted)
            known[alive[done]] = logits.argmax(1)[done]
    return Examples(best.reshape(x.shape), known)


random_search = standalone(search_examples)


def share_of_pixels(query: int, queries: int) -> float:
    """How much of the image the proposal number `query` repaints."""
    return FIRST_SHARE / 2 ** sum(query > halving * queries for halving in HALVINGS)


def _proposal(images: Tensor, query: int, queries: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which pixels each sample repaints, and the sign for each: shapes that broadcast to the images."""
    count, channels, height, width = images.shape
    device = images.device
    if query == 0:
        signs = torch.randint(0, 2, (count, channels, 1, width), generator=generator)
        return torch.ones(count, 1, 1, 1, dtype=torch.bool, device=device), (2.0 * signs - 1).to(images)
    area = share_of_pixels(query, queries) * height * width
    tall = max(1, min(height, round(math.sqrt(area))))
    broad = max(1, min(width, round(area / tall)))
    top = torch.randint(0, height - tall + 1, (count, 1), generator=generator).to(device)
    left = torch.randint(0, width - broad + 1, (count, 1), generator=generator).to(device)
    signs = torch.randint(0, 2, (count, channels, 1, 1), generator=generator)
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    inside_rows = (rows >= top) & (rows < top + tall)
    inside_columns = (columns >= left) & (columns < left + broad)
    inside = inside_rows[:, None, :, None] & inside_columns[:, None, None, :]
    return inside, (2.0 * signs - 1).to(images)


class RandomSearch(AimedAttack):
    """Random squares, without gradients."""

    queries: Count

    @override
    def identity(self, *, transfer: bool) -> dict[str, Any]:
        # Searches before had another schedule.
        return {**super().identity(transfer=transfer), "first_share": FIRST_SHARE}

    def at_epsilon(self, model: nn.Module, seed: int) -> AtEpsilon:
        """The search at any one epsilon."""
        return partial(search_examples, model, queries=self.queries, seed=seed)

    @override
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        return self.one_by_one(self.at_epsilon(model, seed), clean, early_stop)
