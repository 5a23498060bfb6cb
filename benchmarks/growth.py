"""The measured tables of docs/performance.md: where a step's time goes, and how it grows.

python -m benchmarks.growth [profile|classes|layers|batch|models|options] prints Markdown, in minutes.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import lmsweep  # noqa: F401 - guards torchvision, so it comes first

# isort: split
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import steps
from benchmarks.harness import alternate, ratio
from lmsweep.models import ConvNet

Way = Callable[[], Tensor]


def digits(batch: int = 64) -> steps.Setting:
    """The network of the smoke scale, as the command line has it by default."""
    torch.manual_seed(0)
    net = ConvNet((1, 8, 8), 10, channels=[1, 2], dense=[4, 4], kernel_size=3, pool=[1, 2], width=16)
    return steps.Setting(net, torch.rand(batch, 1, 8, 8), torch.randint(10, (batch,)), "all")


def compared(base: Way, ways: Mapping[str, Way], rounds: int = 7) -> list[str]:
    """Each way in times of the base, which comes first in milliseconds."""
    times = alternate({"base": base, **ways}, rounds=rounds)
    cells = [f"{1000 * sorted(times['base'])[rounds // 2]:.1f} ms"]
    for name in ways:
        found = ratio(name, times[name], times["base"])
        cells.append(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
    return cells


def row(*cells: str) -> None:
    """A line of a Markdown table."""
    print("|", " | ".join(cells), "|", flush=True)


def head(*cells: str) -> None:
    """The first two lines of one."""
    print()
    row(*cells)
    print("|" + "---|" * len(cells))


def classes() -> None:
    """How cost grows with the number of classes, in both modes."""
    head("classes", "cross-entropy", "first order", "exact", "arithmetic, at most")
    setting = steps.mnist()
    for count in (1, 2, 3, 5, 9):
        ways = {
            "first": partial(steps.margin, setting, count),
            "exact": partial(steps.margin, setting, count, exact=True),
        }
        row(str(count), *compared(partial(steps.cross_entropy, setting), ways, 5), f"{1 + count / 3:.2f}")


def layers() -> None:
    """How cost grows with the layers, for nine classes."""
    head("layers", "cross-entropy", "nine classes", "a call per layer and class")
    for names in ("output", ["fc2"], ["fc1"], ["conv2"], ["conv1"], "all", "input", "everything"):
        setting = steps.mnist(layers=names)
        ways = {
            "ours": partial(steps.margin, setting, None),
            "theirs": partial(steps.call_per_layer_and_class, setting, None),
        }
        label = names if isinstance(names, str) else names[0]
        row(f"`{label}`", *compared(partial(steps.cross_entropy, setting), ways, 5))


def batch() -> None:
    """How cost grows with the batch."""
    head("batch", "cross-entropy", "nine classes", "best-scored class")
    for size in (16, 64, 128, 256):
        setting = steps.mnist(size)
        ways = {"nine": partial(steps.margin, setting, None), "one": partial(steps.margin, setting, 1)}
        row(str(size), *compared(partial(steps.cross_entropy, setting), ways, 5))


def models() -> None:
    """How cost grows with the model."""
    head("network, batch", "cross-entropy", "nine classes", "best-scored class")
    for name, setting in (
        ("digits_cnn, 64", digits()),
        ("mnist_cnn, 128", steps.mnist()),
        ("wide_resnet 16-2 at `even:5`, 32", steps.wide_resnet()),
    ):
        ways = {"nine": partial(steps.margin, setting, None), "one": partial(steps.margin, setting, 1)}
        row(name, *compared(partial(steps.cross_entropy, setting), ways))


def options() -> None:
    """What else could be switched on, on a CPU: times of the plain step of the same kind."""
    head("network, step", "plain", "channels last", "bfloat16 autocast", "compiled layers", "batched classes")
    for name, make in (("mnist_cnn", steps.mnist), ("wide_resnet 16-2", steps.wide_resnet)):
        plain, last, compiled = make(), make(), make()
        last.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = last.x.contiguous(memory_format=torch.channels_last)
        last = steps.Setting(last.network, images, last.y, last.layers)
        _compile(compiled)
        for label, top_k in (("best-scored class", 1), ("nine classes", None)):
            ways: Mapping[str, Way] = {
                "last": partial(steps.margin, last, top_k),
                "half": partial(_half, plain, top_k),
                "compiled": partial(steps.margin, compiled, top_k),
                "batched": partial(_batched, plain, top_k),
            }
            row(f"{name}, {label}", *compared(partial(steps.margin, plain, top_k), ways, 5))


def _half(setting: steps.Setting, top_k: int | None) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return steps.margin(setting, top_k)


def _batched(setting: steps.Setting, top_k: int | None) -> Tensor:
    from lmsweep.margin.distance import linearised_margins
    from lmsweep.margin.loss import layer_losses, sample_losses

    logits, caught = setting.captured()
    margins = linearised_margins(
        logits, setting.y, caught, norm=2, top_k=top_k, epsilon=1e-6, exact=False, score="logit", batched=True
    )
    per_layer = layer_losses(margins, gamma=steps.GAMMA, aggregation="max", clip=steps.CLIP)
    loss = torch.nn.functional.cross_entropy(logits, setting.y) + sample_losses(per_layer, "sum").mean()
    setting.network.zero_grad()
    loss.backward()
    return loss.detach()


def _compile(setting: steps.Setting) -> None:
    import torch._functorch.config as functorch

    from lmsweep.margin.layers import hidden_layers

    functorch.donated_buffer = False  # as lmsweep.training.build: backward passes are repeated
    for name in hidden_layers(setting.network):
        layer = setting.network.get_submodule(name)
        layer.forward = torch.compile(layer.forward)


def profiled() -> None:
    """Where the time of a step goes, by operation."""
    setting = steps.mnist()
    for name, way in (
        ("cross-entropy", partial(steps.cross_entropy, setting)),
        ("nine classes", partial(steps.margin, setting, None)),
    ):
        way()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
            for _ in range(5):
                way()
        events = sorted(
            found.key_averages(group_by_input_shape=True), key=lambda event: -event.self_cpu_time_total
        )
        total = sum(event.self_cpu_time_total for event in events)
        head(f"{name}: operation", "calls per step", "share", "shapes")
        for event in events[:12]:
            shapes = ", ".join(str(shape) for shape in event.input_shapes[:2] if shape)
            share = f"{event.self_cpu_time_total / total:.1%}"
            row(f"`{event.key}`", f"{event.count / 5:g}", share, shapes)


TABLES = {
    "profile": profiled,
    "classes": classes,
    "layers": layers,
    "batch": batch,
    "models": models,
    "options": options,
}


def main(names: Sequence[str]) -> None:
    """Print the tables asked for, or all."""
    torch.set_num_threads(1)
    for name in names or TABLES:
        TABLES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
