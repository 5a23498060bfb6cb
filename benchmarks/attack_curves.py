"""The seconds of an IFGSM curve, eight epsilons of ten steps each, in those of foolbox for the same curve."""

from collections.abc import Iterator, Sequence

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import foolbox
import torch
from torch import Tensor, nn

from benchmarks.harness import Measured, alternate, ratio
from lmsweep.attacks import IFGSM, attack_curve
from lmsweep.models import ConvNet

ALPHA, STEPS = 0.03, 10
EPSILONS = tuple(ALPHA * STEPS * (i + 1) / 8 for i in range(8))
SAMPLES, ROUNDS = 64, 6


def measure(_: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    network, x, y = _setting()

    def ours(steps: int | None = STEPS, early_stop: bool = False) -> list[float]:
        attack = IFGSM(epsilons=EPSILONS, alpha=ALPHA, steps=steps)
        return attack_curve(network, [(x, y)], attack, early_stop=early_stop).accuracy

    def theirs() -> list[float]:
        attack = foolbox.attacks.LinfBasicIterativeAttack(abs_stepsize=ALPHA, steps=STEPS, random_start=False)
        model = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
        _, _, fooled = attack(model, x, y, epsilons=EPSILONS)
        return [1 - float(row.double().mean()) for row in fooled]

    a, b = ours(), theirs()
    # A sample on the boundary may fall to either side of it by rounding; the curve may not be another one.
    if max(abs(one - other) for one, other in zip(a, b, strict=True)) > 0.02 or a[0] == a[-1]:
        raise RuntimeError(f"the curves are not the same, or flat: {a} and {b}")
    ways = {
        "foolbox": theirs,
        "ours": ours,
        "early stop": lambda: ours(early_stop=True),
        "least steps, one path for all epsilons": lambda: ours(steps=None),
    }
    times = alternate(ways, rounds=ROUNDS)
    yield ratio("attack_curves/ifgsm", times["ours"], times["foolbox"], "the last of ten steps decides")
    for name in list(ways)[2:]:
        yield ratio(f"attack_curves/ifgsm, {name}", times[name], times["foolbox"])


def _setting() -> tuple[nn.Module, Tensor, Tensor]:
    """A network that knows its images, ten patterns under noise, so that an attack has work to do."""
    torch.manual_seed(0)
    net = ConvNet(
        (1, 28, 28), 10, channels=[32, 64], dense=[512, 512], kernel_size=5, pool=[2, 2], width=0.25
    )
    y = torch.randint(10, (SAMPLES,))
    x = 0.5 * torch.rand(10, 1, 28, 28)[y] + 0.5 * torch.rand(SAMPLES, 1, 28, 28)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.eval(), x, y
