"""The accuracy of a network over the strengths of an attack, in one pass over the data."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from lmsweep.attacks.attack import Attack, Clean
from lmsweep.attacks.trajectory import predictions
from lmsweep.margin.temporary import frozen
from lmsweep.seeds import derive_seed

Batches = Iterable[tuple[Tensor, Tensor]]
T = TypeVar("T")
Part = dict[str, Tensor]  # what was found in one batch, on the CPU
# Gives the part that an interrupted measurement has found under a name, else finds and keeps it.
Remember = Callable[[str, Callable[[], Part]], Part]


def afresh(name: str, find: Callable[[], Part]) -> Part:  # noqa: ARG001 - one part is like another
    """Find the part anew."""
    return find()


def within(name: str, remember: Remember) -> Remember:
    """Keep the parts of one measurement among those of others."""
    return lambda part, find: remember(f"{name}/{part}", find)


@dataclass(frozen=True)
class Curve:
    """What one network did under an attack of several strengths."""

    strengths: tuple[float, ...]
    correct: Tensor  # (strengths, samples), on the CPU
    clean_correct: Tensor  # (samples,)
    zero_gradients: tuple[float | None, ...]  # share of exactly-zero gradients; None where none was computed

    @property
    def accuracy(self) -> list[float]:
        """For each strength, the share of samples that were classified correctly."""
        accuracies: list[float] = self.correct.double().mean(1).tolist()
        return accuracies

    def to_dict(self) -> dict[str, Any]:
        """Plain values for results.json."""
        return {
            "strengths": list(self.strengths),
            "accuracy": self.accuracy,
            "clean_accuracy": float(self.clean_correct.double().mean()),
            "zero_gradients": list(self.zero_gradients),
            "samples": len(self.clean_correct),
        }


def attack_curve(
    model: nn.Module,
    batches: Batches,
    attack: Attack,
    *,
    seed: int = 0,
    early_stop: bool = True,
    judge: nn.Module | None = None,
    remember: Remember = afresh,
) -> Curve:
    """Attack `model` with examples made on itself (white-box).

    With `early_stop` a sample counts as fooled, and is left alone, as soon as any point on the attack's way
    fools the network, the clean image included. Without it the attack's last point decides, as in the paper
    and in `transfer_curves`; untargeted, that accuracy can only be higher. Either can rise with the strength;
    it cannot where a larger epsilon's way begins with the whole of a smaller one's, which takes early stop,
    untargeted IFGSM with the least number of steps, and epsilons that are multiples of alpha.
    `judge` answers in the network's place once the examples are made, where the network's own answers are
    drawn at random. `remember` is asked for every batch.
    """
    answers = {"self": model if judge is None else judge}
    found = transfer_curves(
        model, answers, batches, attack, seed=seed, early_stop=early_stop, remember=remember
    )
    return found["self"]


def transfer_curves(
    source: nn.Module,
    targets: Mapping[str, nn.Module],
    batches: Batches,
    attack: Attack,
    *,
    seed: int = 0,
    early_stop: bool = False,
    remember: Remember = afresh,
) -> dict[str, Curve]:
    """Attack every target with the same examples, made on `source` (black-box).

    An example that fools the source early still takes all its steps, because it is not the source that is
    to be fooled; unless `early_stop` says that it is.
    """

    def attacked(x: Tensor, y: Tensor, batch_seed: int) -> Part:
        """Which samples of a batch each target has right, and how many gradients were computed and zero."""
        x, y = x.to(device_of(source)), y.to(device_of(source))
        logits = {name: _logits(model, x) for name, model in targets.items()}
        own = [logits[name] for name, model in targets.items() if model is source]
        clean = Clean(x, y, own[0] if own else _logits(source, x))
        gradients = torch.zeros(2, len(attack.strengths), dtype=torch.long)
        rows: dict[str, list[Tensor]] = {name: [] for name in targets}
        with frozen(source):
            found = attack.examples(source, clean, seed=batch_seed, early_stop=early_stop)
            for i, examples in enumerate(found):
                gradients[0, i] = examples.gradients
                gradients[1, i] = int(examples.zero_gradients)
                for name, model in targets.items():
                    # What the attack knows about its examples is true of the source only.
                    seen = examples if model is source else examples._replace(settled=-torch.ones_like(y))
                    with frozen(model):
                        rows[name].append((predictions(model, seen) == y).cpu())
        return {
            "gradients": gradients,
            **{f"clean/{name}": (logits[name].argmax(1) == y).cpu() for name in targets},
            **{f"correct/{name}": torch.stack(rows[name]) for name in targets},
        }

    parts = []
    for number, (x, y) in enumerate(tracked(batches, type(attack).__name__)):
        find = partial(attacked, x, y, derive_seed(seed, f"batch/{number}"))
        parts.append(remember(f"batch/{number}", find))
    gradients = sum(part["gradients"] for part in parts)
    shares = tuple(int(z) / int(n) if n else None for n, z in gradients.T)  # type: ignore[union-attr]
    return {
        name: Curve(
            attack.strengths,
            torch.cat([part[f"correct/{name}"] for part in parts], 1),
            torch.cat([part[f"clean/{name}"] for part in parts]),
            shares,
        )
        for name in targets
    }


def transfer_matrix(
    models: Mapping[str, nn.Module], batches: Batches, attack: Attack, *, seed: int = 0
) -> dict[str, dict[str, Curve]]:
    """`matrix[source][target]`; the diagonal is `attack_curve(..., early_stop=False)`."""
    return {
        name: transfer_curves(model, models, batches, attack, seed=seed) for name, model in models.items()
    }


@torch.no_grad()
def _logits(model: nn.Module, x: Tensor) -> Tensor:
    with frozen(model):
        logits: Tensor = model(x)
    return logits


def device_of(model: nn.Module) -> torch.device:
    """Where the network's weights are; a network without any computes on the CPU."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def tracked(items: Iterable[T], label: str) -> Iterable[T]:
    """Pass `items` on; on a terminal, show in a bar how many have gone by."""
    console = Console(file=sys.stderr)
    return track(items, label, console=console, transient=True) if console.is_terminal else items
