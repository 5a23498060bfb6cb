"""The truth that the audit's verdicts are compared with: two measurements that the audit does not make.

IFGSM claims too much when it leaves over 5 points more accuracy than attacks with over twice the audit's
budget, other random numbers, and the trick taken away where there is one; where they find no such gap,
AutoAttack's own code has a try. Gradients are masked when, besides, the same IFGSM leaves over 5 points less
with gradients that nothing hides: those of the network behind the trick, in float64, the logits scaled down
until softmax does not saturate, the mean over draws where the trick is noise.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.audit_networks import Trick
from lmsweep.attacks import APGD, Attack, Ensemble, attack_curve, ifgsm
from lmsweep.attacks.autoattack import AutoAttack
from lmsweep.attacks.measures.masking import Expected, Verdict
from lmsweep.attacks.trajectory import logit_margin

TOO_MUCH = 0.05
LEAD = 8.0  # by which the right logit may lead in the median, where IFGSM is to see every gradient
DRAWS, JUDGING, SEED = 12, 100, 20_000  # none of these draws is one of the audit's


def truth(claimed: float, left: float, unhidden: float) -> Verdict:
    """What the audit should say."""
    if claimed - left <= TOO_MUCH + 1e-9:
        return "consistent"
    return "gradients masked" if claimed - unhidden > TOO_MUCH + 1e-9 else "attack too weak to say"


def truth_measured(
    model: Trick, x: Tensor, y: Tensor, claimed: float, *, epsilon: float, alpha: float, oracle: bool
) -> dict[str, Any]:
    """The accuracy that strong attacks leave, and that IFGSM leaves when nothing is hidden."""
    judge = Expected(model, JUDGING, SEED) if model.noise else model
    survivors = survived(model, judge, x, y, epsilon)
    left = share(survivors)
    by_autoattack = None
    if oracle and not model.noise and claimed - left <= TOO_MUCH + 1e-9:
        rows = survivors.nonzero().squeeze(1)
        batches = [(x[rows], y[rows])]
        found = attack_curve(model, batches, AutoAttack(epsilons=(epsilon,), version="standard"), seed=1)
        survivors[rows] = found.correct[0]
        by_autoattack = left - share(survivors)
    return {
        "left": share(survivors),
        "by_autoattack": by_autoattack,
        "unhidden": unhidden(model, judge, x, y, epsilon, alpha),
    }


def share(correct: Tensor) -> float:
    """Accuracy."""
    return float(correct.double().mean())


def survived(model: Trick, judge: nn.Module, x: Tensor, y: Tensor, epsilon: float) -> Tensor:
    """Samples that are right under attacks on the model, and under those on the network behind the trick."""
    ascents: list[Attack] = [
        APGD(epsilons=(epsilon,), steps=100, loss=loss) for loss in ("margin", "xent", "dlr")
    ]
    attacks: list[tuple[nn.Module, Attack]] = []
    if model.noise:
        attacks += [(Expected(model, DRAWS, SEED + 1), one) for one in ascents[:2]]
    else:
        strong = Ensemble(epsilons=(epsilon,), apgd_steps=100, targets=5, minimal_steps=100, queries=1000)
        attacks.append((model, strong))
    if model.noise or model.levels:
        attacks += [(model.network, one) for one in ascents]
    correct = torch.ones(len(x), dtype=torch.bool)
    for network, attack in attacks:
        # Where the judge is another network, the largest margin convinces it more than the first success.
        curve = attack_curve(network, [(x, y)], attack, seed=1, early_stop=network is model, judge=judge)
        correct &= curve.correct[0] & curve.clean_correct
    return correct


@torch.no_grad()
def unhidden(model: Trick, judge: nn.Module, x: Tensor, y: Tensor, epsilon: float, alpha: float) -> float:
    """The accuracy under IFGSM whose gradients are in plain sight."""
    plain, exact = copy.deepcopy(model.network).double(), x.double()
    lead = float(-logit_margin(plain(exact), y).median())
    visible: nn.Module = Trick(plain, scale=LEAD / max(LEAD, lead), noise=model.noise)
    if model.noise:
        visible = Expected(visible, DRAWS, SEED + 2)
    found = ifgsm(visible, exact, y, epsilon=epsilon, alpha=alpha).float()
    return share(judge(found).argmax(1) == y)
