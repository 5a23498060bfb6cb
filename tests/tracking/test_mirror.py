"""Runs that were trained before anybody asked for a tracker, and what each tracker is told of a run."""

from functools import partial

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lmsweep.commands.jobs import run_training, unmirrored
from lmsweep.store.sweeps import record_sweep
from lmsweep.tracking.tracker import LONGEST_GROUP, group_of, run_card
from tests.config.test_run import config
from tests.tracking.reading import files_of, read_back, rows

SHORT = ("trainer.max_steps=20", "trainer.val_every=10", "model.width=2", "margin.gamma=0.5")


def test_a_cell_is_all_but_the_seed():
    one, other, third = (config(*SHORT, *words) for words in ((), ("seed=1",), ("optimizer.lr=0.02",)))
    assert group_of(one) == group_of(other) != group_of(third)
    assert group_of(one).startswith("margin_l2_all digits gamma=0.5 ")
    assert run_card(one, "id", []).name == "margin_l2_all digits gamma=0.5 seed=0"
    names = ",".join(f"layer_number_{n}" for n in range(20))
    assert len(group_of(config(f"margin.layers=[{names}]"))) <= LONGEST_GROUP


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run that was trained without a tracker, and a function that asks for it again."""
    outputs = tmp_path_factory.mktemp("stored")
    folder, results = run_training(config(*SHORT, f"outputs={outputs}"))
    return outputs, folder, results, partial(_again, outputs)


def _again(outputs, *overrides):
    tracked = config(*SHORT, *overrides, f"outputs={outputs}")
    run_training(tracked)
    return tracked


def test_asking_for_a_tracker_mirrors_what_the_store_has(stored):
    outputs, folder, results, again = stored
    again("tracking=wandb")
    (file,) = files_of(outputs, folder.id)
    found = read_back(file)
    told = [{k: v for k, v in row.items() if "." not in k} for row in found.history]
    assert told == rows(folder.metrics)
    assert {key: found.summary[key] for key in results["metrics"]} == results["metrics"]
    assert "confusion" in found.charts
    again("tracking=wandb")
    assert len(files_of(outputs, folder.id)) == 1
    # Another sweep asks for the run: its dashboard looks for a tag that the file does not have.
    tracked = config(*SHORT, "tracking=wandb", f"outputs={outputs}")
    record_sweep(outputs, [tracked.id], "fig2_mnist_noise", "smoke")
    assert list(unmirrored({folder.id: tracked})) == [folder.id]
    again("tracking=wandb")
    newest = read_back(files_of(outputs, folder.id)[-1])
    assert newest.run["tags"][:2] == ["fig2_mnist_noise", "fig2_mnist_noise-smoke"]
    assert not unmirrored({folder.id: tracked})


def test_under_an_agent_of_a_wandb_sweep_its_id_counts_and_the_store_is_ours(stored, monkeypatch, tmp_path):
    outputs, folder, _, again = stored
    parameters = tmp_path / "config.yaml"
    parameters.write_text(yaml.safe_dump({"wandb_version": 1, "choice": {"value": "method=margin"}}))
    for key, value in (("SWEEP_ID", "s1"), ("RUN_ID", "agents"), ("SWEEP_PARAM_PATH", str(parameters))):
        monkeypatch.setenv(f"WANDB_{key}", value)
    again("tracking=wandb")
    found = read_back(files_of(outputs, "agents")[0])
    assert (found.run["run_id"], found.run["sweep_id"]) == ("agents", "s1")
    assert found.config["run_id"] == folder.id
    assert [path.name for path in (outputs / "runs").iterdir() if path.is_dir()] == [folder.id]


def test_tensorboard_gets_curves_results_and_pictures(stored):
    outputs, folder, results, again = stored
    again("tracking=tensorboard")
    events = EventAccumulator(str(outputs / "tensorboard" / f"train-{folder.id}"))
    events.Reload()
    tags = events.Tags()
    wanted = {key for row in rows(folder.metrics) for key in row} - {"step"}
    assert wanted | {"results/test_accuracy"} <= set(tags["scalars"])
    curve = [(e.step, pytest.approx(e.value)) for e in events.Scalars("val_accuracy")]
    assert curve == [(row["step"], row["val_accuracy"]) for row in rows(folder.metrics)]
    (test,) = events.Scalars("results/test_accuracy")
    assert test.value == pytest.approx(results["metrics"]["test_accuracy"])
    assert {"confusion", "adversarial_examples/0"} <= set(tags["images"])
