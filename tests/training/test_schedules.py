"""Learning-rate schedules: closed forms, torch's own, clear errors, and the identity of a run."""

import math

import pytest
import torch

from lmsweep.errors import ConfigError
from lmsweep.training.build import build_data, build_module
from lmsweep.training.module import Classifier
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config, identity

STEPS = 40
SHORT = ("method=xent", "model.width=2", f"trainer.max_steps={STEPS}", "trainer.val_every=10")


@pytest.fixture(scope="module")
def data():
    return build_data(config())


def rates(data, *overrides: str) -> list[float]:
    """The learning rate of every step, in those of the optimizer."""
    made = build_module(config(*SHORT, "optimizer.lr=0.5", *overrides), data).configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    seen = []
    for _ in range(STEPS):
        seen.append(optimizer.param_groups[0]["lr"] / 0.5)
        optimizer.step()
        schedule.step()
    return seen


def cosine(step: int, steps: int) -> float:
    return (1 + math.cos(math.pi * step / steps)) / 2


CLOSED = {
    "step": (("schedule=step", "schedule.step_size=15", "schedule.gamma=0.5"), lambda t: 0.5 ** (t // 15)),
    "decay": (("optimizer.lr_decay=0.5", "optimizer.lr_decay_every=15"), lambda t: 0.5 ** (t // 15)),
    "cosine": (("schedule=cosine",), lambda t: cosine(t, STEPS)),
    "warm-up": (
        ("schedule=warmup", "schedule.warmup=9"),
        lambda t: (t + 1) / 10 if t < 9 else cosine(t - 9, STEPS - 9),
    ),
    "warm-up alone": (("schedule.warmup=4",), lambda t: min(1.0, (t + 1) / 5)),
    "one cycle": (
        ("schedule=one_cycle",),
        lambda t: 0.04 + 0.96 * cosine(9 - t, 9) if t <= 9 else cosine(t - 9, 30),
    ),
    "any other": (
        ("schedule=own", "schedule._target_=torch.optim.lr_scheduler.PolynomialLR", "+schedule.power=2"),
        lambda t: (1 - t / STEPS) ** 2,
    ),
}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_rates_follow_their_closed_form(data, optimizer, name):
    overrides, formula = CLOSED[name]
    found = rates(data, f"optimizer={optimizer}", *overrides)
    assert found == pytest.approx([formula(t) for t in range(STEPS)], abs=1e-4)


def test_constant_has_no_scheduler_and_adam_its_own_keys(data):
    made = build_module(config(*SHORT, "optimizer=adam"), data).configure_optimizers()
    assert isinstance(made, torch.optim.Adam)
    assert made.param_groups[0]["lr"] == 0.001
    decayed = build_module(config(*SHORT, "optimizer=adamw"), data).configure_optimizers()
    assert decayed.param_groups[0]["weight_decay"] == 0.01


WRONG = {
    "no scheduler": (("schedule=own", "schedule._target_=torch.nn.Identity"), "gave no scheduler of torch"),
    "by validation": (
        ("schedule=own", "schedule._target_=torch.optim.lr_scheduler.ReduceLROnPlateau"),
        "goes by steps alone",
    ),
    "argument": (("schedule=cosine", "+schedule.period=3"), r"schedule\.period is not an argument of"),
    "value": (("schedule=one_cycle", "schedule.pct_start=2"), r"does not accept .*schedule\.pct_start=2"),
    "warm-up": (
        ("schedule.warmup=40",),
        r"schedule\.warmup=40 is not allowed: .* below trainer\.max_steps=40",
    ),
    "negative": (("schedule.warmup=-1",), r"schedule\.warmup=-1 is not allowed: it must be a whole number"),
    "both": (
        ("schedule=cosine", "optimizer.lr_decay=0.5"),
        r"lr_decay=0\.5 is not allowed with schedule=cosine",
    ),
    "too few steps": (
        ("schedule=one_cycle", "trainer.max_steps=4", "trainer.val_every=4"),
        "OneCycleLR does not accept",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_before_any_work(data, name):
    overrides, message = WRONG[name]
    with pytest.raises(ConfigError, match=message):
        build_module(config(*SHORT, *overrides), data)


def test_a_schedule_counts_for_identity_and_a_constant_one_does_not():
    assert identity("schedule=constant") == identity()
    others = {
        identity(*words) for words in (("schedule=cosine",), ("schedule=step",), ("schedule.warmup=5",))
    }
    assert len(others | {identity()}) == 4


@pytest.mark.parametrize("schedule", ["schedule=one_cycle", "schedule=warmup"])
def test_a_run_that_goes_on_ends_bitwise_like_an_undisturbed_one(tmp_path, monkeypatch, schedule):
    words = (*SHORT, schedule, "schedule.warmup=13" if "warmup" in schedule else "schedule.warmup=0")

    def train(folder):
        folder.mkdir(exist_ok=True)
        return run(prepare_run(config(*words)), "id", folder)["selections"]["last"]

    whole = train(tmp_path / "whole")
    step = Classifier.training_step

    def broken(self, batch, batch_idx):
        if self.global_step == 15:
            raise KeyboardInterrupt
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "training_step", broken)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "parts")
    assert train(tmp_path / "parts") == whole
