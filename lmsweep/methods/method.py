"""What a method is: its own options, and what it adds to the loss of a training step.

A method is a class that derives from `Method`, in any module of this package. `name` is its value of
`method.criterion`, and its fields are the keys of the block `method.NAME`, whose values are in conf/. Nothing
else has to know of a new method. The loss of a run is

    xent_weight * cross-entropy + criterion    on the logits and on those of auxiliary heads
    + term                                     once per step, for what needs more than logits
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from lmsweep.errors import ConfigError
from lmsweep.margin.temporary import evaluating
from lmsweep.seeds import ALL, Share, to_device

# Each description completes the sentence "it must be ..." in the error a user sees.
Positive = Annotated[float, Field(gt=0, description="a number > 0")]
NonNegative = Annotated[float, Field(ge=0, description="a number >= 0")]
Unit = Annotated[float, Field(ge=0, le=1, description="a number in [0, 1]")]
Count = Annotated[int, Field(ge=1, description="a whole number >= 1")]


@dataclass(frozen=True)
class Step:
    """One training step, after its forward pass."""

    network: nn.Module
    x: Tensor  # requires grad where the method says `input_gradient`
    y: Tensor
    logits: Tensor
    again: Callable[[Tensor], Tensor]  # logits of other images, with the same units dropped
    features: Tensor | None = None  # what went into the last linear layer, where the method says `features`
    seed: int = 0  # of this step: a resumed run draws the same numbers
    share: Share = ALL  # which samples of the whole batch these are

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, `shape` of them for each sample, the same for any number of processes."""
        generator = torch.Generator().manual_seed(self.seed)
        whole = torch.randn(self.share.whole(len(self.x)), *shape, generator=generator)
        return to_device(self.share.of(whole), self.x.device)


class Method(BaseModel):
    """Cross-entropy alone; other methods override what they do differently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    name: ClassVar[str] = "xent"
    input_gradient: ClassVar[bool] = False  # whether the term differentiates by the images
    differentiates_twice: ClassVar[bool] = False  # whether the term contains gradients itself
    features: ClassVar[bool] = False  # whether the term needs the last linear layer and its input
    further_passes: ClassVar[bool] = False  # whether the term runs the network again
    makes_examples: ClassVar[bool] = False  # whether the method makes adversarial examples of its own

    def criterion(self, logits: Tensor, targets: Tensor) -> Tensor | None:
        """What is added to cross-entropy, of the logits of the network and of each auxiliary head."""
        return None

    def term(self, step: Step) -> Tensor | None:
        """What is added once per step."""
        return None

    @property
    def has_term(self) -> bool:
        """Whether a step has a term; most methods save the time to prepare for it."""
        return type(self).term is not Method.term

    def prepare(self, network: nn.Module) -> None:
        """Change a fresh network before it is trained, or before stored weights are put into it."""

    def after_update(self, network: nn.Module) -> None:
        """Change weights after every step of the optimizer."""


def method_class(name: str) -> type[Method]:
    """The method with this value of `method.criterion`."""
    known = _known()
    if name not in known:
        raise ConfigError(
            f"method.criterion={name} is not allowed: it must be one of {', '.join(sorted(known))}; "
            "change it on the command line or in conf/method/."
        )
    return known[name]


def method_names() -> list[str]:
    """Every value of `method.criterion`."""
    return sorted(_known())


@functools.cache
def _known() -> dict[str, type[Method]]:
    package = importlib.import_module(str(__package__))
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    found = {Method.name: Method}
    waiting = [Method]
    while waiting:
        for child in waiting.pop().__subclasses__():
            waiting.append(child)
            if "name" in vars(child):
                found[child.name] = child
    return found


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    """The linear layers; the last of them gives the logits where a method says `features`."""
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def last_linear(network: nn.Module, x: Tensor) -> nn.Linear:
    """The linear layer whose output the logits of `x` are; ValueError when the network has none."""
    linear = linear_layers(network)
    if not linear:
        raise ValueError(f"{type(network).__name__} has no linear layer")
    given: list[Tensor] = []
    handle = linear[-1].register_forward_hook(lambda _, __, output: given.append(output))
    with handle, evaluating(network), torch.random.fork_rng(devices=[]), torch.no_grad():
        logits = network(x)
    if not given or given[-1] is not logits:
        raise ValueError(f"the logits of {type(network).__name__} do not come from its last linear layer")
    return linear[-1]
