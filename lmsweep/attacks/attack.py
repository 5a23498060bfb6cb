"""What an attack is: its own keys and their checks, and from one batch a set of examples per strength.

An attack is a class that derives from `Attack`, alone in a module. The class declares the keys of
conf/attack/NAME.yaml; the key `kind` there names the module, so nothing else has to know of a new attack.
"""

import importlib
import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from lmsweep.attacks.balls import Norm, per_sample
from lmsweep.attacks.trajectory import Examples, fooled
from lmsweep.errors import ConfigError

# Each description completes "it must be ..." in the error a user sees; a Literal describes itself.
NonNegative = Annotated[float, Field(ge=0)]
# Not strict, so that a list of YAML becomes a tuple.
Strengths = Annotated[
    tuple[NonNegative, ...], Field(strict=False, min_length=1, description="a list of numbers >= 0")
]
Positive = Annotated[float, Field(gt=0, description="a number > 0")]
Count = Annotated[int, Field(ge=1, description="a whole number >= 1")]
Flag = Annotated[bool, Field(description="true or false")]
Target = Literal["none", "least_likely"]
# (x, labels, *, epsilon, settled, early_stop): an attack with all its other keys, at one epsilon.
AtEpsilon = Callable[..., Examples]


@dataclass(frozen=True)
class Clean:
    """A batch and what the attacked network says about it before any attack."""

    x: Tensor
    y: Tensor
    logits: Tensor

    def aim(self, target: Target) -> tuple[Tensor, bool]:
        """The labels to move away from and False; with a target the least likely wrong classes and True."""
        if target == "none":
            return self.y, False
        # The true class can be the least likely one; going there would help the network.
        return self.logits.scatter(1, self.y.unsqueeze(1), torch.inf).argmin(1), True

    def settled(self, labels: Tensor, targeted: bool, early_stop: bool) -> Tensor | None:
        """With early stop: the class of each sample that is misclassified before any attack, else -1."""
        if not early_stop:
            return None
        classes = self.logits.argmax(1)
        return torch.where(fooled(self.logits, labels, targeted), classes, -1)


class Attack(BaseModel):
    """An attack over a range of strengths; what the strengths have in common is computed once."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    seeded: ClassVar[bool] = True  # whether the examples depend on a seed
    transfers: ClassVar[bool] = True  # whether the examples depend on the network they are made on
    unit: ClassVar[str] = "epsilon"  # of the strengths

    @property
    @abstractmethod
    def strengths(self) -> tuple[float, ...]:
        """The x axis of the curve, in the order of the examples."""

    @abstractmethod
    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the examples for each strength; `model` is inside `frozen`."""

    @property
    def kind(self) -> str:
        """What conf/attack/NAME.yaml calls this attack."""
        return type(self).__module__.removeprefix(f"{__package__}.")

    def identity(self, *, transfer: bool) -> dict[str, Any]:
        """All keys that can change a curve; examples for other networks never stop early."""
        keys = {"kind": self.kind, **self.model_dump(mode="json")}
        if transfer and "early_stop" in keys:
            keys["early_stop"] = False
        return keys


class EpsilonAttack(Attack):
    """An attack inside the balls of radius epsilon around the images."""

    epsilons: Strengths

    @property
    def strengths(self) -> tuple[float, ...]:
        """The epsilons."""
        return self.epsilons


class AimedAttack(EpsilonAttack):
    """An attack that may have a target class, and may leave [0, 1]."""

    target: Target = "none"
    clip_pixels: Flag = True
    early_stop: Flag = True

    def one_by_one(self, attack: AtEpsilon, clean: Clean, early_stop: bool) -> Iterator[Examples]:
        """Call `attack` for each epsilon, with the keys that all attacks of this kind have."""
        labels, targeted = clean.aim(self.target)
        settled = clean.settled(labels, targeted, early_stop)
        keys = {"targeted": targeted, "clip_pixels": self.clip_pixels, "early_stop": early_stop}
        for epsilon in self.strengths:
            yield attack(clean.x, labels, epsilon=epsilon, settled=settled, **keys)


class BallAttack(EpsilonAttack):
    """An attack inside balls of several norms and inside [0, 1], without a target class.

    Such attacks take the epsilons in ascending order: an example of a smaller ball lies in every larger one,
    so with early stop a sample that is fooled once costs nothing at larger epsilons.
    """

    always_stops: ClassVar[bool] = False  # whether a sample that is fooled is always left alone

    norm: Norm = "linf"
    early_stop: Flag = True

    @abstractmethod
    def at_epsilon(self, model: nn.Module, seed: int) -> AtEpsilon:
        """The attack at any one epsilon; `model` is inside `frozen`."""

    def examples(self, model: nn.Module, clean: Clean, *, seed: int, early_stop: bool) -> Iterator[Examples]:
        """Yield the examples in the order of the epsilons; they are made from the smallest on."""
        early_stop = early_stop or self.always_stops
        settled = clean.settled(clean.y, targeted=False, early_stop=early_stop)
        attack = self.at_epsilon(model, seed)
        found: dict[float, Examples] = {}
        x = clean.x
        for epsilon in sorted(set(self.strengths)):
            new = attack(clean.x, clean.y, epsilon=epsilon, settled=settled, early_stop=early_stop)
            if settled is not None:
                x = torch.where(per_sample(settled >= 0, x), x, new.x)
                settled, new = new.settled, new._replace(x=x)
            found[epsilon] = new
        yield from (found[epsilon] for epsilon in self.strengths)


class BudgetAttack(AimedAttack):
    """An attack that takes signal-to-noise ratios instead of epsilons when `snrs` is given."""

    epsilons: Strengths = ()
    snrs: Annotated[
        tuple[float, ...] | None,
        Field(strict=False, min_length=1, description="a list of numbers (dB), or null for epsilons"),
    ] = None

    @model_validator(mode="after")
    def _has_strengths(self) -> Self:
        if not self.strengths:
            raise ValueError("epsilons is missing: it must be a list of numbers >= 0, unless snrs is given.")
        return self

    @property
    def unit(self) -> str:  # type: ignore[override] # a constant of other attacks
        """What the strengths are."""
        return "epsilon" if self.snrs is None else "snr"

    @property
    def strengths(self) -> tuple[float, ...]:
        """The budgets in dB, or the epsilons."""
        return self.epsilons if self.snrs is None else self.snrs

    def identity(self, *, transfer: bool) -> dict[str, Any]:
        """All keys that can change a curve: of epsilons and snrs, those that are used."""
        # A budget in dB is met at the end of the path only, so nothing stops early on the way there.
        keys = super().identity(transfer=transfer or self.unit == "snr")
        del keys["snrs" if self.unit == "epsilon" else "epsilons"]
        return keys


def attack_class(kind: str) -> type[Attack]:
    """The attack in the module `kind`: a module of this package, or any other by its dotted name."""
    problem: object = "no attack is defined there"
    try:
        found = _attack_in(kind if "." in kind else f"{__package__}.{kind}")
    except ImportError as error:
        found, problem = None, error
    if found is None:
        modules = [name for _, name, _ in pkgutil.iter_modules([str(Path(__file__).parent)])]
        names = ", ".join(name for name in modules if _attack_in(f"{__package__}.{name}"))
        raise ConfigError(
            f"attack.kind={kind} is not allowed ({problem}): it must be {names}, or package.module of an "
            "attack of your own."
        )
    return found


def _attack_in(name: str) -> type[Attack] | None:
    own = [c for c in vars(importlib.import_module(name)).values() if getattr(c, "__module__", "") == name]
    classes = [c for c in own if isinstance(c, type) and issubclass(c, Attack) and not c.__abstractmethods__]
    return classes[0] if len(classes) == 1 else None
