"""What a margin costs, in times of a cross-entropy step: ours, and one gradient call per layer and class."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from benchmarks import steps
from benchmarks.harness import Measured, alternate_steps, ratio

RELEASED = "a call per layer and class"


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    row = "margin_steps/mnist, quarter width, cross-entropy"
    if row in rows:
        fast = steps.mnist(width=0.25)
        usual = replace(fast, network=steps.ReluBeforePooling(fast.network), x=fast.x.contiguous())
        ways = {"fast": partial(steps.cross_entropy, fast), "usual": partial(steps.cross_entropy, usual)}
        times = alternate_steps(ways, rounds=25)
        yield ratio(row, times["fast"], times["usual"])
    everything = partial(steps.mnist, layers="everything")
    for row, make, top_k, sampled, rounds in (
        ("mnist, 9 classes, at the input too", everything, None, False, 5),
        ("mnist, sampled class, at the input too", everything, 1, True, 9),
        ("mnist, sampled class", steps.mnist, 1, True, 9),
        ("wide_resnet, even:5, sampled class", steps.wide_resnet, 1, True, 9),
        ("inception_v3, best-scored class", steps.inception, 1, False, 5),
    ):
        if f"margin_steps/{row}" in rows:
            setting = make()
            ours = partial(steps.margin, setting, top_k, sampled=sampled)
            times = alternate_steps(
                {"xent": partial(steps.cross_entropy, setting), "ours": ours}, rounds=rounds
            )
            yield ratio(f"margin_steps/{row}", times["ours"], times["xent"])
    row = "margin_steps/mnist, inference"
    if row in rows:
        plain, trained = steps.mnist(), steps.mnist()
        steps.margin(trained, None)
        ways = {"xent": partial(_forward, plain), "margin": partial(_forward, trained)}
        times = alternate_steps(ways, rounds=15)
        yield ratio(row, times["margin"], times["xent"])
    for name, setting, counts, rounds in (
        ("mnist", steps.mnist(), {"9 classes": None, "best-scored class": 1}, 9),
        ("wide_resnet, even:5", steps.wide_resnet(), {"best-scored class": 1}, 9),
    ):
        for label, top_k in counts.items():
            row = f"margin_steps/{name}, {label}"
            if row in rows or f"{row}, {RELEASED}" in rows:
                yield from _compared(row, setting, top_k, rounds)


@torch.inference_mode()
def _forward(setting: steps.Setting) -> torch.Tensor:
    return torch.as_tensor(setting.network(setting.x))


def _compared(row: str, setting: steps.Setting, top_k: int | None, rounds: int) -> Iterator[Measured]:
    ours = partial(steps.margin, setting, top_k)
    theirs = partial(steps.call_per_layer_and_class, setting, top_k)
    steps.agree(setting, {"our step": ours, RELEASED: theirs})
    ways = {"xent": partial(steps.cross_entropy, setting), "ours": ours, "theirs": theirs}
    times = alternate_steps(ways, rounds=rounds)
    step = 1000 * sorted(times["xent"])[rounds // 2]
    yield ratio(row, times["ours"], times["xent"], f"a cross-entropy step takes {step:.0f} ms")
    yield ratio(f"{row}, {RELEASED}", times["theirs"], times["xent"])
