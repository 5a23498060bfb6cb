"""Parseval networks: the step against a naive loop, and what is true of the layers after training."""

import pytest
import torch

from lmsweep.methods.smoothness import constrained, on_the_simplex, orthonormality_step
from lmsweep.models import WideResNet
from lmsweep.training.build import build_module
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

SHORT = ("scale=mnist/smoke", "optimizer=sgd", "optimizer.lr=0.1")


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_the_step_is_its_naive_loop_and_ends_at_singular_values_of_one(shape):
    w = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows, columns = shape
    naive = torch.empty_like(w)
    for i in range(rows):
        for j in range(columns):
            cube = sum(w[i, k] * w[m, k] * w[m, j] for k in range(columns) for m in range(rows))
            naive[i, j] = 1.2 * w[i, j] - 0.2 * cube
    torch.testing.assert_close(orthonormality_step(w, 0.2), naive, rtol=0, atol=1e-9)
    for _ in range(200):
        w = orthonormality_step(w, 0.1)
    torch.testing.assert_close(torch.linalg.svdvals(w), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("pair", [(0.3, 0.9), (2.0, -1.0), (-3.0, 0.5), (0.25, 0.75)])
def test_weights_of_a_sum_go_to_the_nearest_point_of_the_simplex(pair):
    given = torch.tensor(pair, dtype=torch.float64)
    line = torch.linspace(0, 1, 100001, dtype=torch.float64)
    candidates = torch.stack([line, 1 - line], 1)
    nearest = candidates[(candidates - given).square().sum(1).argmin()]
    torch.testing.assert_close(on_the_simplex(given), nearest, rtol=0, atol=1e-5)


def farthest_from_one(module) -> float:
    layers = constrained(module.network, output=False)
    values = [torch.linalg.svdvals(factor * layer.weight.flatten(1)) for layer, factor in layers]
    return max((value - 1).abs().max().item() for value in values)


def test_layers_are_nearly_orthonormal_after_training(tmp_path):
    found = {}
    for words in (("method=xent",), ("method=parseval", "method.parseval.beta=0.1")):
        job = prepare_run(config(*words, *SHORT))
        (tmp_path / words[0]).mkdir()
        results = run(job, "id", tmp_path / words[0])
        found[words[0]] = farthest_from_one(job.module)
        assert results["metrics"]["test_accuracy"] > 0.5
    assert found["method=parseval"] < 0.6 < 2 < found["method=xent"]


def test_a_constrained_convolution_does_not_enlarge_distances():
    job = prepare_run(config("method=parseval", "model.width=2"))
    convolution = job.module.network.conv2[0]
    x = torch.randn(50, convolution.in_channels, 8, 8)
    assert (convolution(x) - convolution(0 * x)).flatten(1).norm(dim=1).le(x.flatten(1).norm(dim=1)).all()


def test_residual_networks_get_convex_sums_that_are_stored_with_the_weights(tmp_path):
    words = ("method=parseval", "model=wide_resnet", "model.depth=10", "model.width=1")
    job = prepare_run(config(*words, "trainer.max_steps=8", "trainer.val_every=4", "optimizer.lr=0.05"))
    run(job, "id", tmp_path)
    pairs = [block.mix for block in job.module.modules() if "mix" in block._parameters]
    assert len(pairs) == 3
    for pair in pairs:
        assert pair.min() >= 0
        assert pair.sum().item() == pytest.approx(1)
        assert not torch.equal(pair, torch.tensor([0.5, 0.5]))
    again = build_module(job.config, job.data)
    again.load_state_dict(torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"])
    x = torch.rand(2, *job.data.input_shape)
    assert again.eval()(x).shape == (2, 10)
    assert not any("mix" in name for name in WideResNet((1, 8, 8), 10, depth=10, width=1).state_dict())
