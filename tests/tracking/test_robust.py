"""Whatever the network and the server do: the same results, in a bounded time, and no key in any file."""

import json
import time
from contextlib import nullcontext

import pytest

from lmsweep.commands.jobs import run_training
from lmsweep.tracking.upload import FAILED, LEAVE_SECONDS
from tests.config.test_run import config
from tests.tracking.reading import files_of, read_back
from tests.tracking.wandb_server import KEY, WRONG_KEY, nobody_there, wandb_server

SHORT = ("method=xent", "trainer.max_steps=10", "trainer.val_every=5", "model.width=2")
PATIENCE = 1.5
ONLINE = ("tracking=wandb", "tracking.mode=online", f"tracking.patience={PATIENCE}")


def trained(outputs, *overrides):
    """The folder and metrics of a run, and how long it took."""
    began = time.monotonic()
    folder, results = run_training(config(*SHORT, *overrides, f"outputs={outputs}"))
    return folder, results["metrics"], time.monotonic() - began


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The metrics of the run without tracking, and how long it takes with files and without uploads."""
    _, metrics, _ = trained(tmp_path_factory.mktemp("plain"))
    _, _, seconds = trained(tmp_path_factory.mktemp("offline"), "tracking=wandb")
    return metrics, seconds


@pytest.mark.parametrize("trouble", ["refuses", "hangs", "answers 500", "wrong key"])
def test_a_server_in_trouble_costs_patience_and_nothing_else(trouble, expected, tmp_path, monkeypatch, capfd):
    metrics, usual = expected
    with nullcontext() if trouble == "refuses" else wandb_server() as server:
        if server is not None:
            server.behaviour = {"hangs": "hang", "answers 500": "500"}.get(trouble, "accept")
        monkeypatch.setenv("WANDB_BASE_URL", server.url if server else nobody_there())
        monkeypatch.setenv("WANDB_API_KEY", WRONG_KEY if trouble == "wrong key" else KEY)
        folder, same, seconds = trained(tmp_path, *ONLINE)
        assert same == metrics
        # Starting the process beside the run takes a moment as well, more of it on a busy machine.
        assert seconds < usual + PATIENCE + LEAVE_SECONDS + 3
        told = capfd.readouterr().err
        assert "Not uploaded to W&B yet" in told
        assert (tmp_path / "wandb" / FAILED).exists()
        # The next run does not even try, so that a sweep does not wait once per run.
        asked = len(server.requests) if server else 0
        _, _, again = trained(tmp_path, *ONLINE, "seed=1")
        assert again < usual + 3
        assert asked == (len(server.requests) if server else 0)
    (file,) = files_of(tmp_path, folder.id)
    found = read_back(file)
    assert (found.exit_code, found.summary["test_accuracy"]) == (0, metrics["test_accuracy"])
    keys = (KEY.encode(), WRONG_KEY.encode())
    assert [p for p in tmp_path.rglob("*") if p.is_file() and any(k in p.read_bytes() for k in keys)] == []
    assert KEY not in told


def test_an_online_run_is_uploaded_while_it_trains(expected, tmp_path, monkeypatch):
    with wandb_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        folder, metrics, _ = trained(tmp_path, *ONLINE[:2], "tracking.project=elsewhere")
        assert metrics == expected[0]
        assert server.uploads == {folder.id: 1}
        there = server.runs[folder.id]
    assert (there["project"], there["jobType"], there["exitcode"]) == ("elsewhere", "train", 0)
    assert [line["step"] for line in there["lines"]] == [5, 10]
    assert json.loads(there["files"]["wandb-summary.json"])["test_accuracy"] == metrics["test_accuracy"]


def breaks(monkeypatch, what, why):
    def broken(*arguments, **options):
        raise RuntimeError(why)

    monkeypatch.setattr(what, broken)


def test_a_tracker_that_breaks_ends_and_the_run_does_not(expected, tmp_path, monkeypatch, capfd):
    breaks(monkeypatch, "wandb.init", "W&B is not well")
    folder, metrics, _ = trained(tmp_path, "tracking=wandb")
    assert metrics == expected[0]
    assert folder.read_status()["state"] == "done"
    assert "Tracking ends here, the work goes on: RuntimeError: W&B is not well" in capfd.readouterr().err


def test_a_portrait_that_cannot_be_made_costs_the_pictures_only(expected, tmp_path, monkeypatch, capfd):
    breaks(monkeypatch, "lmsweep.training.run.portrait", "no picture")
    folder, metrics, _ = trained(tmp_path, "tracking=wandb")
    assert metrics == expected[0]
    found = read_back(files_of(tmp_path, folder.id)[0])
    assert (found.exit_code, found.summary["test_accuracy"]) == (0, metrics["test_accuracy"])
    assert "Tracking ends here, the work goes on: RuntimeError: no picture" in capfd.readouterr().err
