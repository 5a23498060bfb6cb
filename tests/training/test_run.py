"""Keys of the optimiser and the trainer that must reach the training."""

import json

import pytest
import torch

from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

SHORT = (
    "method=xent",
    "trainer.max_steps=40",
    "trainer.val_every=10",
    "model.width=4",
)


def trained(tmp_path, *overrides):
    folder = tmp_path / "-".join(overrides or ("plain",)).replace("/", "_")
    folder.mkdir()
    job = prepare_run(config(*SHORT, *overrides))
    before = torch.cat([p.detach().flatten().clone() for p in job.module.parameters()])
    run(job, "id", folder)
    last = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
    after = torch.cat([last[name].flatten() for name, _ in job.module.named_parameters()])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return before, after, lines


def test_the_learning_rate_falls_in_steps(tmp_path):
    _, _, lines = trained(tmp_path, "optimizer.lr_decay=0.5", "optimizer.lr_decay_every=15")
    rates = {line["step"]: line["learning_rate"] for line in lines if "learning_rate" in line}
    # Recorded after the step: 15 steps at the full rate, 15 at half of it, and so on.
    assert [rates[step] / 0.01 for step in (10, 20, 30, 40)] == pytest.approx([1, 0.5, 0.25, 0.25])


def test_gradient_clipping_bounds_the_way_the_weights_go(tmp_path):
    before, after, _ = trained(tmp_path, "trainer.gradient_clip=1e-3", "optimizer.momentum=0")
    # 40 steps of at most 0.01 * 0.001 each.
    assert 0 < (after - before).norm() <= 40 * 0.01 * 1e-3 * 1.001
    _, free, _ = trained(tmp_path, "optimizer.momentum=0")
    assert (free - before).norm() > 10 * (after - before).norm()


def test_weight_decay_shrinks_the_weights(tmp_path):
    before, plain, _ = trained(tmp_path)
    again, decayed, _ = trained(tmp_path, "optimizer.weight_decay=1.0")
    assert torch.equal(before, again)
    assert decayed.norm() < 0.8 * plain.norm()


def test_rmsprop_takes_its_keys_from_conf(tmp_path):
    ours = trained(tmp_path, "optimizer=rmsprop")[1]
    torchs = trained(
        tmp_path, "optimizer=rmsprop", "optimizer.initial_accumulator=0", "optimizer.eps_inside_sqrt=false"
    )[1]
    assert (ours - torchs).abs().max() > 1e-3
