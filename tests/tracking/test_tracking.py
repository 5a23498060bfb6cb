"""What a tracked sweep leaves: real offline W&B files, read back by W&B's own reader."""

import json

import pytest
import yaml

from lmsweep.provenance import version_name
from tests.tracking.reading import files_of, rows
from tests.tracking.wandb_server import KEY


def test_every_run_is_mirrored_under_its_id_group_job_type_and_tags(tracked_sweep):
    assert list(tracked_sweep.done.values()) == ["margin_l2_all"], tracked_sweep.called.stderr
    assert len(tracked_sweep.failed) == 1
    for name in (*tracked_sweep.done, *tracked_sweep.failed):
        run = tracked_sweep.read(name).run
        assert (run["run_id"], run["project"], run["job_type"]) == (name, "lmsweep", "train")
        assert run["tags"] == ["fig2_mnist_noise", "fig2_mnist_noise-smoke", version_name()]
    groups = {
        tracked_sweep.read(name).run["run_group"] for name in (*tracked_sweep.done, *tracked_sweep.failed)
    }
    assert len(groups) == 2
    assert {group.rpartition(" ")[0] for group in groups} == {"margin_l2_all digits gamma=0.5"}


def test_history_summary_and_config_are_those_of_the_store(tracked_sweep):
    for name, method in tracked_sweep.done.items():
        folder, found = tracked_sweep.outputs / "runs" / name, tracked_sweep.read(name)
        assert found.exit_code == 0
        told = [{k: v for k, v in row.items() if "." not in k} for row in found.history]
        assert told == rows(folder / "metrics.jsonl")
        results = json.loads((folder / "results.json").read_text())["metrics"]
        assert {key: found.summary[key] for key in results} == results
        stored = yaml.safe_load((folder / "config.yaml").read_text())
        assert {key: found.config[key] for key in stored} == stored
        assert (found.config["method_name"], found.config["run_id"]) == (method, name)
    keys = {key for row in found.history for key in row}
    assert {"train_loss", "val_accuracy", "distance/test/input"} <= keys


def test_margin_loss_and_distance_of_every_layer_are_in_the_history(tracked_sweep):
    (name,) = tracked_sweep.done
    keys = {key for row in tracked_sweep.read(name).history for key in row}
    layers = {"conv1", "conv2", "fc1", "output"}
    assert {f"margin/{kind}/{layer}" for kind in ("loss", "distance") for layer in layers} <= keys


def test_confusions_adversarial_examples_and_the_checkpoint_go_along(tracked_sweep):
    name = next(iter(tracked_sweep.done))
    found = tracked_sweep.read(name)
    folder = files_of(tracked_sweep.outputs, name)[0].parent / "files"
    table = json.loads((folder / found.summary["confusion_table.path"]).read_text())
    results = json.loads((tracked_sweep.outputs / "runs" / name / "results.json").read_text())
    counts = {(actual, predicted): n for actual, predicted, n in table["data"]}
    right = sum(n for (actual, predicted), n in counts.items() if actual == predicted)
    assert right / sum(counts.values()) == pytest.approx(results["metrics"]["test_accuracy"])
    assert "confusion" in found.charts
    assert len(list(folder.glob("media/images/adversarial_examples_*.png"))) == 8
    assert "after FGSM with epsilon 0.1" in found.summary["adversarial_examples.captions"][0]
    (model,) = [artifact for artifact in found.artifacts if artifact["type"] == "model"]
    assert model["name"] == f"checkpoint-{name}"


def test_a_failed_run_ends_with_another_exit_code(tracked_sweep):
    assert [tracked_sweep.read(name).exit_code for name in tracked_sweep.failed] == [1]


def test_an_offline_run_asks_no_server_and_writes_the_key_nowhere(tracked_sweep):
    assert tracked_sweep.requests == []
    written = [path for path in tracked_sweep.outputs.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in written)
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    assert KEY not in tracked_sweep.called.stdout + tracked_sweep.called.stderr
