"""Signs that an attack failed for a reason of its own (Pintor et al., 2022, "Indicators of attack failure").

Each function returns one value from 0 to 1, the share of samples that show the sign or a loss of accuracy;
`ADVICE` says what each sign means and what to do about it. The limits are in conf/audit_limits.yaml.
"""

from functools import partial

import torch
from torch import Tensor, nn

from lmsweep.attacks.apgd import apgd_examples
from lmsweep.attacks.attack import Clean
from lmsweep.attacks.trajectory import attack_loss
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed

RADIUS, POINTS, VARIES = 1e-3, 10, 0.1  # around an image, in l2; how much a loss may vary there
LAST_STEPS, MOVES = 10, 0.05  # of an ascent, and how much of its way they may be
ADVICE = {
    "hidden_gradients": (
        "with gradients that nothing hides (log odds, averaged over draws) IFGSM leaves {:.1%} less accuracy",
        "report the attack with these gradients (attack=ifgsm attack.loss=log_odds), or the worst of all",
    ),
    "zero_gradients": (
        "cross-entropy has a gradient of exactly zero for {:.1%} of samples",
        "attack the logit margin or DLR (attack=ifgsm_margin, attack=apgd attack.loss=dlr), or in float64",
    ),
    "saturated": (
        "softmax rounds to exactly 1 for {:.1%} of samples, where cross-entropy loses part of its gradient",
        "attack the logit margin or DLR (attack=ifgsm_margin, attack=apgd attack.loss=dlr), or in float64",
    ),
    "unstable_predictions": (
        "within 0.001 of {:.1%} of images the loss varies by more than a tenth",
        "average the gradient over the network's randomness, or attack without what rounds or draws",
    ),
    "silent_success": (
        "IFGSM passes a wrong answer for {:.1%} of samples and ends at a right one",
        "count every point of the way (attack.early_stop=true)",
    ),
    "incomplete_optimisation": (
        "for {:.1%} of samples the ascent failed, and climbed over 5% of its way in its last 10 steps",
        "take more steps (attack.apgd_steps) and restarts",
    ),
    "transfer_failure": (
        "{:.1%} of the other network's examples fool that network and not this one",
        "do not rest a claim on transfer; attack the network itself",
    ),
    "unconstrained_fails": (
        "IFGSM leaves {:.1%} accuracy when every image is allowed, where 0% is right",
        "another loss or step size; no curve of this attack means anything",
    ),
    "every_unconstrained_fails": (
        "no gradient attack gets below {:.1%} accuracy when every image is allowed, where 0% is right",
        "attack a differentiable stand-in for the network, or search with more queries (attack.queries)",
    ),
    "gradient_free_wins": (
        "the search without gradients leaves {:.1%} less accuracy than all gradient attacks together",
        "search with more queries (attack.queries), because gradients mislead",
    ),
}


@torch.no_grad()
def unstable_predictions(model: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    """Whether the loss at points very near to each image differs, by a tenth of it in the mean."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "unstable predictions"))
    with frozen(model):
        loss = attack_loss(model(x), y, "xent")
        change = torch.zeros_like(loss)
        for _ in range(POINTS):
            noise = torch.randn(x.shape, generator=generator).flatten(1)
            noise = (RADIUS * noise / noise.norm(dim=1, keepdim=True)).view_as(x).to(x)
            near = attack_loss(model((x + noise).clamp(0, 1)), y, "xent")
            # Where softmax rounds to 1 the loss is 0, and so is what it varies by.
            change += ((near - loss).abs() / loss.clamp_min(1e-12)).clamp_max(1.0) / POINTS
    return change > VARIES


def incomplete_optimisation(
    model: nn.Module, clean: Clean, *, epsilon: float, steps: int, seed: int = 0
) -> tuple[int, int]:
    """Ascents of the logit margin that fail inside epsilon (linf), and those of them that still climb."""
    history: list[Tensor] = []
    settled = clean.settled(clean.y, targeted=False, early_stop=True)
    climb = partial(apgd_examples, model, clean.x, clean.y, loss="margin", seed=seed, history=history)
    with frozen(model):
        found = climb(epsilon=epsilon, steps=steps, settled=settled, early_stop=True)
    failed = found.settled < 0
    if not bool(failed.any()) or len(history) <= LAST_STEPS:
        return int(failed.sum()), 0
    way = history[-1] - history[0]
    late = history[-1] - history[-1 - LAST_STEPS]
    return int(failed.sum()), int((late > MOVES * way)[failed].sum())
