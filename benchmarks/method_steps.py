"""What a step of each method costs on the paper's MNIST network, in times of a cross-entropy step.

Options are those of figX_methods: attacks of `xent+pgd`, `trades` and `mma` take three steps, and
`jacobian` and `cross_lipschitz` one random projection.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks import steps
from benchmarks.harness import Measured, alternate_steps, ratio

# isort: split
import torch
import torch.nn.functional as F
from torch import Tensor

from lmsweep.config.hydra import composed
from lmsweep.config.run import split
from lmsweep.methods import Method, Step, linear_layers
from lmsweep.training.build import build_method
from lmsweep.training.callbacks import adversarial_batch

ROW = "method_steps/mnist, "
ROUNDS = 9
NORMS = {"margin_l2_all": 2, "margin_linf_all": math.inf}


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    for row in rows:
        if row.startswith(ROW):
            name = row.removeprefix(ROW)
            times = alternate_steps({"xent": _way("xent"), name: _way(name)}, rounds=ROUNDS)
            yield ratio(row, times[name], times["xent"])


def _way(name: str) -> Callable[[], Tensor]:
    setting = steps.mnist()
    if name.startswith("margin"):
        return partial(steps.margin, setting, None, norm=NORMS[name])
    words = ["sweep=figX_methods", f"method={name.removeprefix('xent+')}"]
    config = split(composed("config", words))[0]
    if name == "xent+pgd":
        attack = config.adversarial.model_dump(include={"kind", "epsilon", "alpha", "steps"})
        return partial(_on_examples, setting, attack)
    method = build_method(config)
    method.prepare(setting.network)
    return partial(_step, setting, method)


def _on_examples(setting: steps.Setting, attack: dict[str, Any]) -> Tensor:
    x = adversarial_batch(setting.network, setting.x, setting.y, fraction=1.0, seed=0, **attack)
    return steps.finish(setting, F.cross_entropy(setting.network(x), setting.y))


def _step(setting: steps.Setting, method: Method) -> Tensor:
    network, y = setting.network, setting.y
    x = setting.x.detach().requires_grad_(method.input_gradient)
    features: list[Tensor] = []
    last = linear_layers(network)[-1]
    with last.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0])):
        logits = network(x)
    loss = F.cross_entropy(logits, y)
    parts = (method.criterion(logits, y), method.term(Step(network, x, y, logits, network, features[0])))
    for part in parts:
        loss = loss if part is None else loss + part
    finished = steps.finish(setting, loss)
    method.after_update(network)
    return finished
