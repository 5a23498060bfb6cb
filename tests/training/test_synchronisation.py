"""Between two looks at the loss a training step never waits for the device.

On a GPU the host only queues work; a step that reads a value back (`.item()`, `bool(tensor)`, a shape that
depends on data) stops until the queue is empty. There is no GPU here, but the operations are the same.
"""

from collections import Counter, defaultdict

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmsweep.data import Split, TrainingBatches
from lmsweep.data.augment import Augmentation
from lmsweep.training.build import build_adversarial
from lmsweep.training.callbacks import CHECK_EVERY, adversarial_batch
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

aten = torch.ops.aten
READS = (
    *(aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.nonzero, aten.masked_select),
    *(aten._unique2, aten.unique_dim, aten.unique_consecutive, aten.bincount),
)
# What a shape depends on when the index is a mask.
INDEXING = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)
STEPS = 2 * CHECK_EVERY + 1


class Reads(TorchDispatchMode):
    """Counts, per training step, the operations that would wait for a GPU."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.step = lambda: None
        self.found = defaultdict(Counter)
        for name in ("tolist", "cpu", "numpy"):  # these read without an operation of their own on a CPU
            method = getattr(torch.Tensor, name)
            monkeypatch.setattr(torch.Tensor, name, self._counted(name, method))

    def _counted(self, name, method):
        def call(tensor, *args, **kwargs):
            self.found[self.step()][name] += 1
            return method(tensor, *args, **kwargs)

        return call

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        packet = func.overloadpacket
        masked = packet in INDEXING and any(i is not None and i.dtype == torch.bool for i in args[1])
        if packet in READS or masked:
            self.found[self.step()][str(func)] += 1
        return func(*args, **(kwargs or {}))


def reads_of(tmp_path, monkeypatch, *overrides):
    """The reads of a run, by how many steps Lightning had counted by then."""
    reads = Reads(monkeypatch)
    fixed = (f"trainer.max_steps={STEPS}", f"trainer.val_every={STEPS}", "trainer.log_every=1000")
    job = prepare_run(config("trainer.accelerator=cpu", "trainer.batch_size=16", *fixed, *overrides))

    def start(trainer, *_):
        reads.step = lambda: trainer.global_step if trainer.training else None

    monkeypatch.setattr("lmsweep.training.callbacks.RichProgress.on_train_start", lambda self, *a: start(*a))
    with reads:
        run(job, "id", tmp_path)
    return reads.found


WAYS = {
    "xent": ("method=xent",),
    "hinge, decay, clipping": ("method=hinge", "optimizer.lr_decay=0.5", "trainer.gradient_clip=1"),
    "augmented": ("method=xent", "data.augment.pad=1", "data.augment.flip=true"),
    "margin": ("method=margin",),
    "margin of the best-scored": (
        "method=margin",
        "margin.norm=inf",
        "margin.layers=input",
        "margin.top_k=1",
        "margin.aggregation=sum",
    ),
    "margin of the nearest": (
        "method=margin",
        "margin.norm=1",
        "margin.top_k=2",
        "margin.candidates=distance",
    ),
    "margin in softmax scores, a norm of its own": ("margin.score=softmax", "margin.norm=3"),
    "exact margin": ("method=margin", "margin.exact=true", "margin.top_k=1"),
    "margin per layer": ("margin.layers=[conv1,output]", "margin.gamma=[1,2]", "margin.layer_weights=[1,3]"),
    "margin without batch statistics": ("model=mnist_cnn_released", "margin.batch_norm=per_sample"),
    "margin in bfloat16": ("method=margin", "trainer.precision=bf16-mixed"),
    "fgsm": ("method=margin", "margin.norm=inf", "adversarial=fgsm", "margin.top_k=1"),
    "pgd": ("method=xent", "adversarial=pgd", "adversarial.steps=2"),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_step_waits_between_looks_at_the_loss(tmp_path, monkeypatch, way):
    found = reads_of(tmp_path, monkeypatch, "model.width=0.25", *WAYS[way])
    looks = {step for step in range(1, STEPS + 1) if step % CHECK_EVERY == 0 or step == STEPS}
    steps = {step: dict(found[step]) for step in sorted(k for k in found if isinstance(k, int))}
    assert {step: reads for step, reads in steps.items() if step not in looks} == {}
    assert all(steps[step] for step in looks)  # the counter hears what there is to hear


class Copies(TorchDispatchMode):
    """Copies from the host to a device that has no values, by whether the host waits for them."""

    def __init__(self):
        super().__init__()
        self.waiting = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        hosts = any(t.device.type == "cpu" for t in tensors)
        if hosts and isinstance(out, torch.Tensor) and out.device.type == "meta":
            self.waiting[str(func)] += not (kwargs or {}).get("non_blocking", False)
        return out


COPYING = {
    "augmentation": ("method=xent",),
    "lists of numbers": ("margin.layers=[conv1,output]", "margin.gamma=[1,2]", "margin.layer_weights=[1,3]"),
    "fgsm with epsilons of its own": (
        "method=margin",
        "margin.norm=inf",
        "adversarial=fgsm",
        "margin.top_k=2",
    ),
    "pgd from random starts": ("method=xent", "adversarial=pgd", "adversarial.steps=2"),
}


@pytest.mark.parametrize("way", COPYING)
def test_what_the_host_draws_is_copied_without_waiting(way, monkeypatch):
    monkeypatch.setattr("lmsweep.margin.callback._is_logging_step", lambda _: False)
    job = prepare_run(config("trainer.accelerator=cpu", "model.width=0.25", *COPYING[way]))
    train, network = job.data.train, job.module.network
    augment = job.data.augment
    if way == "augmentation":  # colours too
        augment = Augmentation(pad=1, flip=True, brightness=0.1, contrast=0.1, saturation=0.1, hue=0.1)
        train = Split(train.x.expand(-1, 3, -1, -1), train.y)
    job.module.to("meta")
    batches = iter(TrainingBatches(train.to("meta"), 8, seed=0, augment=augment))
    adversarial = build_adversarial(job.config)
    with Copies() as copies:
        x, y = next(batches)
        if way == "augmentation":
            x = x[:, :1]
        if adversarial:
            x = adversarial_batch(network, x, y, seed=0, **adversarial.options)
        step = job.module.training_step
        if job.margin:
            job.margin._names = job.margin.check(job.module)
            step = job.margin._wrap(job.module, step)
        step((x, y), 0).backward()
    assert copies.waiting  # the order of the samples, at least
    assert sum(copies.waiting.values()) == 0
    assert all(p.grad is not None for p in network.parameters())
