"""Networks that draw their answer at random: the expectation over draws, which gradients can climb.

An attack on single draws climbs noise, and a single lucky draw counts as its success. So the expectation is
attacked (expectation over transformation, Athalye et al., 2018), and other draws judge what was found.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import override

from lmsweep.attacks.measures.curve import Batches
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed

ATTACKED, JUDGING = 8, 50  # draws that attacks climb, and other draws that judge what they found


class Expected(nn.Module):
    """The mean logits of a network over `draws` draws, which are the same ones in every call."""

    def __init__(self, network: nn.Module, draws: int, seed: int) -> None:
        super().__init__()
        self.network, self.draws, self.seed = network, draws, seed

    @override
    def forward(self, x: Tensor) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            logits: Tensor = torch.stack([self.network(x) for _ in range(self.draws)]).mean(0)
        return logits


@dataclass(frozen=True)
class Steady:
    """What attacks climb, and what answers for their examples: the network itself unless it draws."""

    attacked: nn.Module
    judge: nn.Module
    draws: bool


def steady(model: nn.Module, batches: Batches, seed: int) -> Steady:
    """The network as it can be attacked and judged."""
    if not answers_at_random(model, batches):
        return Steady(model, model, draws=False)
    attacked = Expected(model, ATTACKED, derive_seed(seed, "draws attacked"))
    return Steady(attacked, Expected(model, JUDGING, derive_seed(seed, "draws judging")), draws=True)


@torch.no_grad()
def answers_at_random(model: nn.Module, batches: Batches) -> bool:
    """Whether the network gives one image different logits, in evaluation mode."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    x = next(iter(batches))[0].to(device)
    with frozen(model), torch.random.fork_rng():
        one, other = model(x), model(x)
    # Kernels of a GPU may add in another order each time, which changes last bits only.
    return bool((one - other).abs().max() > 1e-4 * one.abs().max())
