"""Runs with telemetry: the same bit for bit as without, whole or resumed, with the right steps."""

import json
from collections.abc import Iterator
from itertools import islice

import pytest
import torch

from lmsweep.data import Split
from lmsweep.training.checkpoint import METRICS
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config
from tests.training.test_telemetry import CNN, EVERY, NETWORKS, RESNET

SHORT = ("trainer.max_steps=20", "trainer.val_every=8", "trainer.batch_size=16", "trainer.log_every=5")


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def parted(lines):
    """Lines of telemetry, and all others."""
    measured = [line for line in lines if any(key.startswith("distance/") for key in line)]
    return measured, [line for line in lines if line not in measured]


class Broken(Split):
    """Data that the user stops at step 13, after the checkpoint of step 8 and the telemetry of step 12."""

    def read(self, indices, **more) -> Iterator:
        yield from islice(super().read(indices, **more), 13)
        raise KeyboardInterrupt

    def to(self, device):
        return self


def train(folder, *overrides, broken=False):
    folder.mkdir(exist_ok=True)
    job = prepare_run(config(*SHORT, *overrides))
    if broken:
        object.__setattr__(job.data, "train", Broken(job.data.train.x, job.data.train.y))
        with pytest.raises(KeyboardInterrupt):
            run(job, "id", folder)
        return torch.load(folder / "checkpoint.ckpt", weights_only=True), None
    results = run(job, "id", folder)
    return torch.load(folder / "checkpoint.ckpt", weights_only=True), results


def assert_same(one, two):
    """Equal bit for bit, in all but the time it took and the lines of metrics, which telemetry adds to."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one.keys() - {"seconds", METRICS}:
            assert_same(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    else:
        assert one == two


@NETWORKS
@pytest.mark.parametrize("method", ["xent", "margin"])
def test_a_run_is_bitwise_the_same_with_and_without(tmp_path, network, method):
    overrides = (*network, f"method={method}")
    without, results = train(tmp_path / "without", *overrides)
    checkpoint, measured_results = train(tmp_path / "with", *overrides, *EVERY)
    assert measured_results["metrics"] == results["metrics"]
    assert_same(checkpoint, without)
    measured, others = parted(lines_of(tmp_path / "with"))
    assert others == lines_of(tmp_path / "without")
    assert [line["step"] for line in measured] == [0, 4, 8, 12, 16, 20]
    names = {f"distance/{s}/{p}" for s in ("train", "val", "test") for p in ("input", "middle", "output")}
    assert all(line.keys() == {"step"} | names for line in measured)


def test_a_checkpoint_on_the_way_is_bitwise_the_same_with_and_without(tmp_path):
    overrides = (*RESNET, "method=xent")
    without, _ = train(tmp_path / "without", *overrides, broken=True)
    checkpoint, _ = train(tmp_path / "with", *overrides, *EVERY, broken=True)
    assert checkpoint["global_step"] == 8
    assert "optimizer_states" in checkpoint
    assert "rng_state" in checkpoint
    assert_same(checkpoint, without)


@NETWORKS
def test_a_resumed_run_writes_the_lines_of_an_undisturbed_one(tmp_path, network):
    overrides = (*network, *EVERY, "method=xent")
    checkpoint, results = train(tmp_path / "whole", *overrides)
    train(tmp_path / "parts", *overrides, broken=True)
    assert [line["step"] for line in parted(lines_of(tmp_path / "parts"))[0]] == [0, 4, 8, 12]
    resumed_checkpoint, resumed = train(tmp_path / "parts", *overrides)
    assert lines_of(tmp_path / "parts") == lines_of(tmp_path / "whole")
    assert resumed["metrics"] == results["metrics"]
    assert_same(resumed_checkpoint, checkpoint)


def test_the_recorded_step_is_the_number_of_steps_taken(tmp_path):
    """Step 0 is the fresh network, and the last line, off the interval, the trained one."""
    overrides = (*CNN, "method=xent", "telemetry.every=7", "telemetry.samples=37")
    fresh = prepare_run(config(*SHORT, *overrides))
    before = fresh.telemetry.measure(fresh.module)
    train(tmp_path / "run", *overrides)
    measured, _ = parted(lines_of(tmp_path / "run"))
    assert [line["step"] for line in measured] == [0, 7, 14, 20]
    assert measured[0] == {"step": 0, **before}
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["state_dict"]
    fresh.module.load_state_dict(state)
    assert measured[-1] == {"step": 20, **fresh.telemetry.measure(fresh.module)}
