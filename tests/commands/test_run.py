"""One run end to end, as a user starts it: real processes, a store of its own each time."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from lmsweep.commands import reported

# Small enough to be quick, with everything in it that an interruption could spoil: dropout, momentum, decay.
SHORT = (
    "trainer.max_steps=60",
    "trainer.val_every=10",
    "trainer.batch_size=32",
    "model.width=4",
    "model.dropout=0.2",
    "optimizer.lr_decay=0.9",
    "optimizer.lr_decay_every=15",
    "data.label_noise=0.2",
    "data.fraction=0.5",
)


def only_run(outputs: Path) -> Path:
    (run,) = [path for path in (outputs / "runs").iterdir() if path.is_dir()]
    return run


def read(path: Path):
    return json.loads(path.read_text())


def metric_lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(lmsweep_command, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    outputs = tmp_path_factory.mktemp("finished")
    done = lmsweep_command(*SHORT, outputs=outputs, fresh=True)
    assert done.returncode == 0, done.stderr
    return outputs, done


def test_a_run_leaves_the_promised_files_and_a_last_line(finished):
    outputs, done = finished
    run = only_run(outputs)
    assert sorted(p.name for p in run.iterdir()) == [
        "checkpoint.ckpt",
        "config.yaml",
        "last.ckpt",
        "metrics.jsonl",
        "results.json",
        "status.json",
    ]
    results = read(run / "results.json")
    last = done.stdout.strip().splitlines()[-1]
    remarks = f"  ({'; '.join(results['remarks'])})" if results["remarks"] else ""
    assert last == (
        f"{run}  validation {results['metrics']['val_accuracy']:.2%}"
        f"  test {results['metrics']['test_accuracy']:.2%}{remarks}"
    )
    status = read(run / "status.json")
    assert (status["state"], status["attempt"]) == ("done", 1)
    assert results["id"] == run.name
    assert results["method"] == "margin_l2_all"
    assert set(results["selections"]) == {"best_clean", "last"}
    assert results["data"]["train_size"] == 500
    assert results["data"]["flipped"] == 100
    lines = metric_lines(run)
    assert [line["step"] for line in lines if "val_accuracy" in line] == [10, 20, 30, 40, 50, 60]
    assert {"train_loss", "margin/loss/conv1", "margin/distance/output"} <= set(lines[0])


def test_the_selected_weights_are_the_best_on_validation_and_are_in_the_checkpoint(finished):
    outputs, _ = finished
    run = only_run(outputs)
    metrics = read(run / "results.json")["metrics"]
    seen = {line["step"]: line["val_accuracy"] for line in metric_lines(run) if "val_accuracy" in line}
    assert metrics["val_accuracy"] == pytest.approx(max(seen.values()))
    assert seen[metrics["selected_step"]] == max(seen.values())
    checkpoint = torch.load(run / "checkpoint.ckpt", weights_only=True)
    assert "network.conv1.0.weight" in checkpoint["state_dict"]


def test_asking_again_returns_the_results_without_training(finished, lmsweep_command):
    outputs, first = finished
    run = only_run(outputs)
    before = (run / "results.json").stat().st_mtime_ns
    again = lmsweep_command(
        *SHORT, "trainer.log_every=7", outputs=outputs, fresh=True, PYTHONPROFILEIMPORTTIME="1"
    )
    imported = {line.rpartition("|")[2].strip() for line in again.stderr.splitlines()}
    assert "lmsweep" in imported
    assert "torch" not in imported, "most of the start is spent on torch, which nothing here needs"
    assert again.stdout == first.stdout
    assert (run / "results.json").stat().st_mtime_ns == before
    assert only_run(outputs) == run


def test_two_fresh_stores_give_bitwise_equal_metrics(finished, lmsweep_command, tmp_path):
    outputs, _ = finished
    done = lmsweep_command(*SHORT, outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    one, two = (read(only_run(folder) / "results.json") for folder in (outputs, tmp_path))
    assert one["id"] == two["id"]
    assert one["metrics"] == two["metrics"]
    assert metric_lines(only_run(outputs)) == metric_lines(only_run(tmp_path))


def test_one_training_has_the_last_weights_too_and_those_that_clean_labels_choose(lmsweep_command, tmp_path):
    done = lmsweep_command(*SHORT, "trainer.max_steps=25", outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    results = read(only_run(tmp_path) / "results.json")
    last, clean = results["selections"]["last"], results["selections"]["best_clean"]
    assert last["selected_step"] == last["steps"] == 25
    lines = {line["step"]: line for line in metric_lines(only_run(tmp_path)) if "val_accuracy" in line}
    assert max(lines) == 25
    for found, step in ((last, 25), (clean, clean["selected_step"])):
        for key in ("val_accuracy", "val_clean_accuracy"):
            assert found[key] == pytest.approx(lines[step][key])
    assert clean["val_clean_accuracy"] == pytest.approx(max(x["val_clean_accuracy"] for x in lines.values()))
    assert "train_accuracy" in results["metrics"]


@pytest.mark.parametrize("precision", [pytest.param("64-true", marks=pytest.mark.slow), "bf16-mixed"])
def test_other_precisions_run_to_the_end(lmsweep_command, tmp_path, precision):
    done = lmsweep_command(*SHORT, f"trainer.precision={precision}", "trainer.max_steps=10", outputs=tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_step_is_recorded(lmsweep_command, tmp_path):
    done = lmsweep_command(*SHORT, "trainer.max_steps=1", outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = metric_lines(only_run(tmp_path))
    assert {"train_loss", "val_accuracy"} <= {key for line in lines for key in line}
    assert {line["step"] for line in lines} == {1}


def test_an_output_folder_that_is_a_file_is_named(lmsweep_command, tmp_path):
    (tmp_path / "file").write_text("")
    done = lmsweep_command(*SHORT, outputs=tmp_path / "file")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert str(tmp_path / "file") in done.stderr


@pytest.mark.parametrize("moment", ["early", pytest.param("late", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_to_the_same_result(finished, lmsweep_command, tmp_path, moment):
    process = subprocess.Popen(
        [sys.executable, "-m", "lmsweep", *SHORT],
        env={**os.environ, "LMSWEEP_OUTPUTS": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wanted = "step 10/" if moment == "early" else "step 50/"
    for line in process.stderr:
        if wanted in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    run = only_run(tmp_path)
    assert read(run / "status.json")["state"] == "running"
    assert not (run / "results.json").exists()
    step = (
        torch.load(run / "checkpoint.ckpt", weights_only=True)["global_step"]
        if (run / "checkpoint.ckpt").exists()
        else 0
    )

    done = lmsweep_command(*SHORT, outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    # It went on from the checkpoint instead of starting again.
    reported = [
        int(line.split("step ")[1].split("/")[0]) for line in done.stderr.splitlines() if "step " in line
    ]
    assert reported == list(range(step + 10, 61, 10))
    undisturbed = only_run(finished[0])
    assert read(run / "status.json")["attempt"] == 2
    assert read(run / "results.json")["metrics"] == read(undisturbed / "results.json")["metrics"]
    assert metric_lines(run) == metric_lines(undisturbed)


def test_ctrl_c_gives_the_run_back(finished, lmsweep_command, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "lmsweep", *SHORT],
        env={**os.environ, "LMSWEEP_OUTPUTS": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "step 20/" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert read(only_run(tmp_path) / "status.json")["state"] == "pending"
    done = lmsweep_command(*SHORT, outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        read(only_run(tmp_path) / "results.json")["metrics"]
        == read(only_run(finished[0]) / "results.json")["metrics"]
    )


def test_a_diverged_run_fails_with_that_reason(lmsweep_command, tmp_path):
    done = lmsweep_command(*SHORT, "method=xent", "optimizer.lr=1e30", outputs=tmp_path)
    assert done.returncode == 1
    run = only_run(tmp_path)
    assert "diverged" in done.stderr
    assert str(run / "error.txt") in done.stderr
    assert "Traceback" not in done.stderr
    status = read(run / "status.json")
    assert status["state"] == "failed"
    assert "diverged" in status["reason"]
    assert "Traceback" in (run / "error.txt").read_text()
    assert not (run / "results.json").exists()


# What a user types, and what the one sentence must name.
BAD_INPUTS = {
    "margin.gamma=0": ("margin.gamma=0", "a number > 0"),
    "margin.gamma=[1,2]": ("gamma has 2 values", "conv1, conv2, fc1, fc2, output"),
    "margin.gamma=[]": ("margin.gamma=[]", "a number > 0"),
    "margin.layers=[]": ("margin.layers=[]", "even:N"),
    "model._target_=builtins.dict": ("model._target_=builtins.dict", "class or function"),
    "margin.norm=0.5": ("margin.norm=0.5", "a number >= 1, or inf"),
    "margin.norm=two": ("margin.norm=two", "a number >= 1, or inf"),
    "data.label_noise=1": ("data.label_noise=1", "[0, 1)"),
    "data.label_noise=-0.1": ("data.label_noise=-0.1", "[0, 1)"),
    "data.fraction=0": ("data.fraction=0", "(0, 1]"),
    "margin.layers=conv9": ("margin.layers=conv9", "input, conv1, conv2, fc1, fc2, output"),
    "method=nope": ("method=nope", "margin_released"),
    "seed=abc": ("seed=abc", "a whole number >= 0"),
    "margin.clip=true": ("margin.clip=true", "a number > 0, or null"),
    "margin.gama=3": ("margin.gama", "gamma"),
    "+margin.extra=3": ("margin.extra", "layer_weights"),
    "modell=x": ("modell", "model"),
    "+model.widht=3": ("model.widht", "width"),
    "model.width=-3": ("model.width=-3", "it must be a number > 0"),
    "model._target_=no.such": ("model._target_=no.such", "No module"),
    "trainer.max_steps=1.5": ("trainer.max_steps=1.5", "a whole number >= 1"),
    "trainer.precision=8": ("trainer.precision=8", "32-true"),
    "model.pool=[8,8]": ("model.pool=[8, 8]", "leaves nothing of images of 8x8"),
    "data.source._target_=lmsweep.data.digits.np": ("lmsweep.data.digits.np", "class or function"),
    "optimizer.momentum=-1": ("optimizer.momentum=-1", "momentum"),
    "outputs=/proc/nowhere": ("outputs=/proc/nowhere", "LMSWEEP_OUTPUTS"),
    "seed=[": ("seed=[", "key=value"),
    "scale=laptop": ("scale=laptop", "mnist/laptop"),
    "sweep=fig2_mnist_noise scale=huge": ("scale=huge", "laptop, paper, smoke"),
    "scale=mnist/laptop margin.norm=3": ("margin.norm=3", "margin.gamma=VALUE"),
    "-m sweep=fig2_mnist_noise margin.norm=3": ("margin.norm=3", "margin.gamma=VALUE"),
    "-m +hydra.sweeper.rules.odd={when:{seed:0}}": ("hydra.sweeper.rules.odd.axes is missing", "a mapping"),
    "-m +hydra.sweeper.rules.odd={when:{sed:0},axes:{margin.gamma:2}}": ("no key sed", "lmsweep --help"),
}


@pytest.mark.parametrize("argument", BAD_INPUTS)
def test_bad_input_stops_with_one_sentence_before_any_work(argument, lmsweep_command, tmp_path):
    done = lmsweep_command(*argument.split(), outputs=tmp_path / "store")
    assert done.returncode != 0
    assert done.stdout == ""
    sentence = done.stderr.strip()
    assert len(sentence.splitlines()) == 1, sentence
    for part in BAD_INPUTS[argument]:
        assert part in sentence
    assert not (tmp_path / "store").exists()


def test_what_a_single_run_of_a_sweep_would_be_is_shown(lmsweep_command, tmp_path):
    done = lmsweep_command("sweep=fig2_mnist_noise", "scale=laptop", "--cfg", "job", outputs=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert [shown[key]["name"] for key in ("data", "model", "optimizer")] == ["mnist", "mnist_cnn", "rmsprop"]
    assert (shown["model"]["width"], shown["optimizer"]["lr"]) == (0.25, 0.003)
    assert (shown["margin"]["norm"], shown["margin"]["gamma"]) == (2, 2)


def test_help_lists_groups_and_keys_without_importing_torch(lmsweep_command, tmp_path):
    done = lmsweep_command("--help", outputs=tmp_path, fresh=True, PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    for word in ("method", "margin_released", "label_noise", "gamma"):
        assert word in done.stdout
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "hydra" in imported
    assert "torch" not in imported


@pytest.mark.parametrize(("words", "goes_on"), [((), True), (("-m", "seed=0,1", "dry_run=true"), False)])
def test_a_stopped_rehearsal_says_nothing_of_checkpoints(monkeypatch, capsys, words, goes_on):
    monkeypatch.setattr(sys, "argv", ["lmsweep", *words])
    with pytest.raises(SystemExit), reported():
        raise KeyboardInterrupt
    told = capsys.readouterr().err
    assert told.startswith("Stopped")
    assert ("checkpoint" in told) == goes_on
