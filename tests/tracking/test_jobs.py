"""What comes after training, read back from W&B's files: attacks beside their targets, and figures."""

import json
import shutil

import pytest

from lmsweep.commands.figures import figure_command
from tests.evaluation.conftest import evaluate, request
from tests.sweep.sweeping import TINY
from tests.tracking.reading import files_of, read_back


@pytest.fixture(scope="module")
def store(tracked_sweep, tmp_path_factory):
    """A copy of what the sweep left but for its W&B files."""
    copy = tmp_path_factory.mktemp("jobs") / "outputs"
    shutil.copytree(tracked_sweep.outputs, copy, ignore=shutil.ignore_patterns("wandb"))
    return copy


def attack(outputs, names):
    quoted = ",".join(f"'{name}'" for name in names)
    asked = ("attack=fgsm", "attack.epsilons=[0,0.1,0.2]", "samples=60", "tracking=wandb")
    return evaluate(request(outputs, f"runs=[{quoted}]", *asked))


@pytest.fixture(scope="module")
def attacked(tracked_sweep, store):
    """An attack on the finished networks by themselves: results and what W&B has, by run."""
    outputs, done = store, attack(store, tracked_sweep.done)
    found = {}
    for one, folder, results in done:
        (file,) = files_of(outputs, folder.id)
        (target,) = one.targets
        found[target] = ({**results, **results["curves"][target]}, read_back(file), file)
    assert all(len(files_of(outputs, folder.id)) == 1 for _, folder, _ in done)
    return found


def test_an_attack_is_a_job_of_its_targets_cell(attacked, tracked_sweep):
    for name, (results, found, _) in attacked.items():
        of_target = tracked_sweep.read(name).run
        assert (found.run["run_id"], found.run["job_type"]) == (results["id"], "attack")
        assert (found.run["run_group"], found.run["tags"]) == (of_target["run_group"], of_target["tags"])
        assert found.config["attack_name"] == "white_box_fgsm"
        assert (found.config["method_name"], found.config["target"]) == (tracked_sweep.done[name], name)


def test_a_curve_is_rows_a_table_and_a_plot(attacked):
    for results, found, file in attacked.values():
        curve = [
            (row["attack/white_box_fgsm/strength"], row["attack/white_box_fgsm/accuracy"])
            for row in found.history[:3]
        ]
        assert curve == list(zip(results["strengths"], results["accuracy"], strict=True))
        table = json.loads(
            (file.parent / "files" / found.summary["attack/white_box_fgsm/curve.path"]).read_text()
        )
        assert [row[:2] for row in table["data"]] == [list(point) for point in curve]
        assert "attack/white_box_fgsm/curve_plot" in found.charts


def test_measured_once_is_mirrored_once(attacked, tracked_sweep, store):
    before = len(list((store / "wandb").iterdir()))
    attack(store, tracked_sweep.done)
    assert len(list((store / "wandb").iterdir())) == before


def test_a_figure_is_a_job_with_its_picture_its_csv_and_its_claims(store, monkeypatch, capsys):
    monkeypatch.setenv("LMSWEEP_OUTPUTS", str(store))
    words = ("method=margin", "margin.norm=2", "seed=0", "data.label_noise=0", "telemetry.every=10", *TINY)
    figure_command(["fig2_mnist_noise", *words, "trainer.log_every=10", "tracking=wandb"])
    (picture,) = (store / "figures").glob("*/fig2_mnist_noise.png")
    scale = picture.parent.name
    assert scale.startswith("smoke-")  # other runs than the real ones: not to be taken for them
    (file,) = files_of(store, f"fig2_mnist_noise-{scale}")
    found, files = read_back(file), file.parent / "files"
    assert (found.run["job_type"], found.run["run_group"]) == ("figure", "fig2_mnist_noise")
    assert found.run["tags"][:2] == ["fig2_mnist_noise", f"fig2_mnist_noise-{scale}"]
    shown = (files / found.summary["figure.path"]).read_bytes()
    assert shown == picture.read_bytes()
    assert (files / picture.with_suffix(".csv").name).read_bytes() == picture.with_suffix(".csv").read_bytes()
    claims = json.loads((files / found.summary["claims.path"]).read_text())
    record = json.loads(picture.with_suffix(".json").read_text())
    assert [row[0] for row in claims["data"]] == [claim["verdict"] for claim in record["claims"]]
    assert "points/noise_plot" in found.charts
