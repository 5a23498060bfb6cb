"""The distance to the boundary during training: right, and measured without a trace."""

import copy

import pytest
import torch
from torch import nn

from lmsweep.data import EvaluationBatches
from lmsweep.errors import ConfigError
from lmsweep.margin import margin_distance
from lmsweep.margin.layers import capture
from lmsweep.training.callbacks import DistanceTelemetry, mean_distances
from lmsweep.training.run import prepare_run, probe_seconds
from tests.config.test_run import config

CNN = ("model.width=4", "model.dropout=0.2")
RESNET = ("model=wide_resnet", "model.depth=10", "model.width=1", "model.dropout=0.2")
EVERY = ("telemetry.every=4", "telemetry.samples=37")  # 37: neither whole batches nor all of a split
NETWORKS = pytest.mark.parametrize("network", [CNN, RESNET], ids=["cnn", "wide_resnet"])


def with_statistics(job):
    """Batch norm whose running statistics are not those of the batch, and dropout that would be seen."""
    job.module.train()
    with torch.no_grad():
        for _ in range(3):
            job.module(torch.rand(32, *job.data.input_shape))
    return job


@NETWORKS
@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_means_are_those_of_a_naive_loop(network, norm):
    job = with_statistics(prepare_run(config(*network, *EVERY, f"telemetry.norm={norm}")))
    job.telemetry.batch_size = 16
    measured = job.telemetry.measure(job.module)
    layers = ["input", "conv2" if network is CNN else "block1.0", "output"]
    net = copy.deepcopy(job.module.network).eval()
    for name in ("train", "val", "test"):
        split = getattr(job.data, name)
        sums = torch.zeros(3, dtype=torch.float64)
        for x, y in EvaluationBatches(split.select(torch.arange(37)), 1):  # one sample at a time
            with capture(net, layers) as captured:
                net(x)
            tensors = [captured.layers[layer] for layer in layers]
            distances = margin_distance(captured.logits, y, tensors, norm=norm)[0].detach()
            for layer in range(3):
                sums[layer] += min(float(distances[k, layer]) for k in range(10) if k != int(y))
        for place, value in zip(("input", "middle", "output"), (sums / 37).tolist(), strict=True):
            assert measured[f"distance/{name}/{place}"] == pytest.approx(value, rel=1e-4, abs=1e-6)
    assert len(measured) == 9


def test_the_sign_is_that_of_the_correct_side():
    net = nn.Linear(2, 3, bias=False)
    net.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    x = torch.tensor([[2.0, 1.0]])

    # The boundary between the first two classes is the diagonal, sqrt(1/2) away.
    def distance(images, *labels):
        return mean_distances(net, [(images, torch.tensor(labels))], ["input"])

    # The 1e-6 that keeps denominators from zero is 7e-7 of this one, more than float32 rounds.
    assert distance(x, 0) == pytest.approx([0.5**0.5], rel=4e-6)
    assert distance(x, 1) == pytest.approx([-(0.5**0.5)], rel=4e-6)
    assert distance(x.repeat(2, 1), 0, 1) == pytest.approx([0.0], abs=4e-6)


@NETWORKS
def test_measuring_leaves_no_trace(network):
    job = with_statistics(prepare_run(config(*network, *EVERY)))
    module = job.module
    module(torch.rand(4, *job.data.input_shape)).sum().backward()
    frozen = next(m for m in module.modules() if isinstance(m, nn.Dropout | nn.BatchNorm2d))
    frozen.eval()  # a part that is not in the mode of the whole

    def state():
        return [
            torch.get_rng_state(),
            *(value.clone() for value in module.state_dict().values()),
            *(p.grad.clone() for p in module.parameters()),
            torch.tensor([m.training for m in module.modules()]),
            torch.tensor([len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()]),
        ]

    before = state()
    with torch.no_grad():  # Lightning may have gradients switched off
        values = job.telemetry.measure(module)
    assert all(torch.equal(a, b) for a, b in zip(before, state(), strict=True))
    assert values == job.telemetry.measure(module)


def test_memory_is_bounded_by_the_batch():
    job = prepare_run(config(*CNN, *EVERY, "trainer.batch_size=400"))
    assert job.telemetry.batch_size == 400
    assert prepare_run(config(*CNN, *EVERY)).telemetry.batch_size == 20_000 // 64  # small images
    job.telemetry.batch_size = 10
    sizes = []
    job.module.register_forward_hook(lambda _, args, out: sizes.append(len(out)))
    job.telemetry.measure(job.module)
    assert sizes == [10, 10, 10, 7] * 3


def test_a_generator_drawn_from_in_evaluation_is_put_back():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x + torch.rand_like(x))

    net, batch = Noisy(2, 3), (torch.rand(4, 2), torch.zeros(4, dtype=torch.int64))
    before = torch.get_rng_state()
    mean_distances(net, [batch], ["output"])
    assert torch.equal(torch.get_rng_state(), before)


def test_other_layers_keep_their_own_names():
    job = prepare_run(config(*CNN, *EVERY, "telemetry.layers=[conv*,output]", "telemetry.norm=inf"))
    assert isinstance(job.telemetry, DistanceTelemetry)
    names = {key.split("/")[2] for key in job.telemetry.measure(job.module)}
    assert names == {"conv1", "conv2", "output"}
    assert prepare_run(config(*CNN)).telemetry is None


def test_layers_that_do_not_exist_are_refused_before_any_work():
    with pytest.raises(ConfigError, match=r"telemetry\.layers=nowhere does not fit the model"):
        prepare_run(config(*CNN, *EVERY, "telemetry.layers=nowhere"))
    prepare_run(config(*CNN, "telemetry.layers=nowhere"))  # not looked at when nothing is measured
    with pytest.raises(ConfigError, match=r"telemetry\.every=-1 is not allowed: it must be a whole"):
        config("telemetry.every=-1")


def test_noise_and_augmentation():
    """Training images are measured as they are, with the labels that the run trains on."""
    job = prepare_run(config(*CNN, *EVERY, "data.label_noise=0.4", "data.augment.pad=2"))
    split = job.telemetry.splits["train"]
    assert torch.equal(split.x, job.data.train.x[:37])
    assert torch.equal(split.y, job.data.train.y[:37])
    seen = []
    job.module.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    job.telemetry.measure(job.module)
    assert torch.equal(torch.cat(seen)[:37], next(iter(EvaluationBatches(split, 37)))[0])


def test_the_estimate_of_a_sweep_knows_of_telemetry(tmp_path, clock_of_samples):
    common = (*CNN, "method=xent", "trainer.max_steps=200", "trainer.val_every=100", f"outputs={tmp_path}")
    often = config(*common, "telemetry.every=1")
    assert probe_seconds(often) > 2 * probe_seconds(config(*common))
