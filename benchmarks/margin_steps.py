"""What a margin costs, in times of a cross-entropy step: ours, and one gradient call per layer and class."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from benchmarks import steps
from benchmarks.harness import Measured, alternate, ratio

RELEASED = "a call per layer and class"


def measure(rows: Sequence[str]) -> Iterator[Measured]:
    """The rows of this module."""
    torch.set_num_threads(1)
    row = "margin_steps/mnist, quarter width, cross-entropy"
    if row in rows:
        fast = steps.mnist(width=0.25)
        usual = replace(fast, network=steps.ReluBeforePooling(fast.network), x=fast.x.contiguous())
        ways = {"fast": partial(steps.cross_entropy, fast), "usual": partial(steps.cross_entropy, usual)}
        times = alternate(ways, rounds=25)
        yield ratio(row, times["fast"], times["usual"])
    for row, setting, top_k, rounds in (
        ("mnist, 9 classes, at the input too", steps.mnist(layers="everything"), None, 5),
        ("mnist, sampled class, at the input too", steps.mnist(layers="everything"), 1, 9),
        ("mnist, sampled class", steps.mnist(), 1, 9),
        ("wide_resnet, even:5, sampled class", steps.wide_resnet(), 1, 9),
    ):
        if f"margin_steps/{row}" in rows:
            ours = partial(steps.margin, setting, top_k, sampled=top_k is not None)
            times = alternate({"xent": partial(steps.cross_entropy, setting), "ours": ours}, rounds=rounds)
            yield ratio(f"margin_steps/{row}", times["ours"], times["xent"])
    for name, setting, counts, rounds in (
        ("mnist", steps.mnist(), {"9 classes": None, "best-scored class": 1}, 9),
        ("wide_resnet, even:5", steps.wide_resnet(), {"best-scored class": 1}, 9),
    ):
        for label, top_k in counts.items():
            row = f"margin_steps/{name}, {label}"
            if row in rows or f"{row}, {RELEASED}" in rows:
                yield from _compared(row, setting, top_k, rounds)


def _compared(row: str, setting: steps.Setting, top_k: int | None, rounds: int) -> Iterator[Measured]:
    ours = partial(steps.margin, setting, top_k)
    theirs = partial(steps.call_per_layer_and_class, setting, top_k)
    steps.agree(setting, {"our step": ours, RELEASED: theirs})
    ways = {"xent": partial(steps.cross_entropy, setting), "ours": ours, "theirs": theirs}
    times = alternate(ways, rounds=rounds)
    step = 1000 * sorted(times["xent"])[rounds // 2]
    yield ratio(row, times["ours"], times["xent"], f"a cross-entropy step takes {step:.0f} ms")
    yield ratio(f"{row}, {RELEASED}", times["theirs"], times["xent"])
