"""Callbacks from the configuration, early stopping among them, a cap on evaluation, and a GPU by index."""

import pytest
import torch

from lmsweep.config.run import check_sweepable
from lmsweep.data import fixed_choice
from lmsweep.errors import ConfigError
from lmsweep.training.build import build_data
from lmsweep.training.checkpoint import RunCheckpoint
from lmsweep.training.evaluate import evaluate
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

SHORT = ("method=xent", "model.width=2", "trainer.max_steps=40", "trainer.val_every=5", "trainer.log_every=5")
# Nothing is better by 1, so the first validation counts, and the second one ends the run.
STOPS = (
    *SHORT,
    "callbacks=early_stopping",
    *(f"callbacks.early_stopping.{k}=1" for k in ("patience", "min_delta")),
)
OWN = """
import pytorch_lightning as pl

class Count(pl.Callback):
    def __init__(self, file):
        self.file = file

    def on_train_batch_end(self, trainer, *arguments):
        open(self.file, "a").write(f"{trainer.global_step} ")
"""


def folder(parent, name):
    (parent / name).mkdir()
    return parent / name


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped")
    return path, run(prepare_run(config(*STOPS)), "id", path)


def test_early_stopping_ends_a_run_when_validation_is_no_better(stopped, tmp_path):
    _, results = stopped
    assert results["metrics"]["steps"] == 10
    assert run(prepare_run(config(*SHORT)), "id", tmp_path)["metrics"]["steps"] == 40


@pytest.mark.parametrize("killed_at", [5, 10])
def test_a_killed_run_stops_where_the_other_one_does(stopped, tmp_path, monkeypatch, killed_at):
    """At 10 it had stopped already, and lacked nothing but the record of its results."""
    saved = RunCheckpoint.on_validation_end

    def killed(self, trainer, module):
        saved(self, trainer, module)
        if trainer.global_step == killed_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunCheckpoint, "on_validation_end", killed)
    with pytest.raises(KeyboardInterrupt):
        run(prepare_run(config(*STOPS)), "id", tmp_path)
    monkeypatch.undo()
    again = run(prepare_run(config(*STOPS)), "id", tmp_path)
    other, results = stopped
    assert again["metrics"] == results["metrics"]
    assert (tmp_path / "metrics.jsonl").read_text() == (other / "metrics.jsonl").read_text()


def test_what_is_off_makes_no_other_run_and_what_is_on_does():
    plain = config(*SHORT)
    assert not {"callbacks", "content"} & plain.identity_dict().keys()
    assert "evaluation_samples" not in plain.identity_dict()["trainer"]
    others = [config(*SHORT, *more) for more in (STOPS, ("trainer.evaluation_samples=50",))]
    assert len({one.id for one in (plain, *others)}) == 3


def test_a_callback_of_ones_own_is_called_and_its_code_is_part_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counting.py").write_text(OWN)
    own = ("callbacks=own", "callbacks.own._target_=counting.Count", f"+callbacks.own.file={tmp_path}/steps")
    asked = config(*SHORT, "trainer.max_steps=5", *own).with_content()
    run(prepare_run(asked), "id", folder(tmp_path, "run"))
    assert (tmp_path / "steps").read_text() == "1 2 3 4 5 "
    (tmp_path / "counting.py").write_text(OWN + "# changed\n")
    changed = config(*SHORT, "trainer.max_steps=5", *own).with_content()
    assert changed.id != asked.id
    assert asked.changed_content() == ["callbacks.own._target_=counting.Count"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("torch.nn.ReLU", "callbacks.own._target_=torch.nn.ReLU gave no pytorch_lightning.Callback"),
        ("nowhere.Watch", "callbacks.own._target_=nowhere.Watch cannot be imported"),
    ],
)
def test_what_is_no_callback_is_refused(target, told):
    with pytest.raises(ConfigError, match=told):
        prepare_run(config(*SHORT, "callbacks=own", f"callbacks.own._target_={target}"))


def test_evaluation_looks_at_a_fixed_choice_of_samples(tmp_path):
    few = prepare_run(config(*SHORT, "trainer.max_steps=5", "trainer.evaluation_samples=60"))
    metrics = run(few, "id", tmp_path)["metrics"]
    whole = build_data(few.config)
    for name in ("train", "val", "test"):
        split = getattr(whole, name)
        expected = evaluate(few.module, split.select(fixed_choice(len(split), 60)))
        assert metrics[f"{name}_accuracy"] == expected["accuracy"]
    assert len(few.data.train) == len(whole.train)
    inside, around = fixed_choice(500, 60), fixed_choice(500, 200)
    assert len(inside.unique()) == 60
    assert torch.isin(inside, around).all()


def test_a_cap_that_is_larger_than_the_data_changes_nothing(tmp_path):
    found = [
        run(prepare_run(config(*SHORT, "trainer.max_steps=5", *more)), "id", folder(tmp_path, str(len(more))))
        for more in ((), ("trainer.evaluation_samples=1000000",))
    ]
    assert found[0]["metrics"] == found[1]["metrics"]


def test_a_gpu_by_index_is_used_or_refused(monkeypatch, tmp_path):
    asked = config(*SHORT, "trainer.devices=[1]")
    assert asked.id == config(*SHORT).id
    assert (asked.trainer.processes, asked.trainer.gpu) == (1, 1)
    for gpus, told in ((0, "there is no GPU to use"), (1, "torch sees 1, counted from 0")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        with pytest.raises(ConfigError, match=rf"trainer.devices=\[1\] names a GPU, and {told}"):
            prepare_run(asked)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    given = {}

    def trainer(**options):
        given.update(options)
        raise InterruptedError

    monkeypatch.setattr("lmsweep.training.fit.pl.Trainer", trainer)
    with pytest.raises(InterruptedError):
        run(prepare_run(asked), "id", tmp_path)
    assert given["devices"] == [1]
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES=1 before the command"):
        check_sweepable(asked)
    for wrong in ("[0,1]", "[]", "0", "[-1]"):
        with pytest.raises(ConfigError, match="or the index of one GPU in brackets"):
            config(*SHORT, f"trainer.devices={wrong}")
