"""What a reader of results should know first: chance level, a loss that never fell, too few samples."""

import pytest

from lmsweep.commands.jobs import run_training
from lmsweep.commands.store import status_command
from lmsweep.figures.collect import training
from lmsweep.store.store import Store
from lmsweep.training.run import prepare_run, remarks
from tests.config.test_run import config

CHANCE = {"test_accuracy": 0.1, "train_accuracy": 0.1, "train_loss": 2.31}


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({}, ["at chance level", "the loss never fell below that of guessing"]),
        ({"train_loss": 2.2}, ["at chance level"]),
        ({"test_accuracy": 0.2}, ["the loss never fell below that of guessing"]),
        # Large logits make a large loss of few mistakes.
        ({"test_accuracy": 0.9, "train_accuracy": 0.95, "train_loss": 7.0}, []),
    ],
)
def test_a_run_that_learnt_nothing_is_marked(metrics, told):
    assert remarks(prepare_run(config()), CHANCE | metrics) == told


def test_wrong_labels_excuse_a_large_loss():
    assert remarks(prepare_run(config("data.label_noise=0.8")), CHANCE | {"test_accuracy": 0.3}) == []


def test_too_few_samples_are_told():
    job = prepare_run(config("data.fraction=0.007", "trainer.batch_size=32"))
    good = {"test_accuracy": 0.9, "train_accuracy": 1.0, "train_loss": 0.1}
    absent = 10 - len(set(job.data.train.y.tolist()))
    assert remarks(job, good) == [
        f"{absent} of 10 classes have no sample among the 7 for training",
        "a batch is larger than the 7 training samples",
    ]


def test_status_and_figures_show_the_mark(tmp_path, capsys):
    short = (
        "trainer.max_steps=1",
        "trainer.val_every=1",
        "model.width=2",
        "method=xent",
        "optimizer.lr=1e-9",
    )
    runs = [config(*short, f"seed={seed}", f"outputs={tmp_path}") for seed in (0, 1)]
    for one in runs:
        run_training(one)
    status_command(["--outputs", str(tmp_path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line[:12] in {run.id for run in runs}]
    assert len(lines) == 2
    assert all("(at chance level" in line for line in lines)
    assert "2 of 2 runs: at chance level" in training(Store(tmp_path), [run.id for run in runs])["remarks"]
