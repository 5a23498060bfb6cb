"""Whatever the network and the server do: the same results, in a bounded time, and no key in any file."""

import json
import subprocess
from contextlib import nullcontext

import pytest

from lmsweep.commands.jobs import run_training
from lmsweep.tracking.upload import FAILED, LEAVE_SECONDS, LOG
from tests.config.test_run import config
from tests.tracking.reading import files_of, read_back
from tests.tracking.wandb_server import KEY, WRONG_KEY, nobody_there, wandb_server

SHORT = ("method=xent", "trainer.max_steps=10", "trainer.val_every=5", "model.width=2")
PATIENCE = 1.5
ONLINE = ("tracking=wandb", "tracking.mode=online", f"tracking.patience={PATIENCE}")


def trained(outputs, *overrides):
    """The folder and metrics of a run."""
    folder, results = run_training(config(*SHORT, *overrides, f"outputs={outputs}"))
    return folder, results["metrics"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The metrics of the run without tracking."""
    _, metrics = trained(tmp_path_factory.mktemp("plain"))
    return metrics


@pytest.fixture
def waits(monkeypatch):
    """How long, at most, each wait for an upload was to take."""
    found = []

    def wait(process, timeout=None, before=subprocess.Popen.wait):
        if "lmsweep.tracking.upload" in process.args:
            found.append(timeout)
        return before(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    return found


@pytest.mark.parametrize("trouble", ["refuses", "hangs", "answers 500", "wrong key"])
def test_a_server_in_trouble_costs_patience_and_nothing_else(
    trouble, expected, waits, tmp_path, monkeypatch, capfd
):
    with nullcontext() if trouble == "refuses" else wandb_server() as server:
        if server is not None:
            server.behaviour = {"hangs": "hang", "answers 500": "500"}.get(trouble, "accept")
        monkeypatch.setenv("WANDB_BASE_URL", server.url if server else nobody_there())
        monkeypatch.setenv("WANDB_API_KEY", WRONG_KEY if trouble == "wrong key" else KEY)
        folder, metrics = trained(tmp_path, *ONLINE)
        assert metrics == expected
        assert waits == [PATIENCE + LEAVE_SECONDS]
        assert trouble != "hangs" or server.answers == 0, "the run waited for the server"
        told = capfd.readouterr().err
        assert "Not uploaded to W&B yet" in told
        assert (tmp_path / "wandb" / FAILED).exists()
        # The next run does not even try, so that a sweep does not wait once per run.
        second, _ = trained(tmp_path, *ONLINE, "seed=1")
        assert len(waits) == 1
        assert not (files_of(tmp_path, second.id)[0].parent / LOG).exists()
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
        folder, metrics = trained(
            tmp_path, *ONLINE[:2], "tracking.patience=600", "tracking.project=elsewhere"
        )
        assert metrics == expected
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
    folder, metrics = trained(tmp_path, "tracking=wandb")
    assert metrics == expected
    assert folder.read_status()["state"] == "done"
    assert "Tracking ends here, the work goes on: RuntimeError: W&B is not well" in capfd.readouterr().err


def test_a_portrait_that_cannot_be_made_costs_the_pictures_only(expected, tmp_path, monkeypatch, capfd):
    breaks(monkeypatch, "lmsweep.training.run.portrait", "no picture")
    folder, metrics = trained(tmp_path, "tracking=wandb")
    assert metrics == expected
    found = read_back(files_of(tmp_path, folder.id)[0])
    assert (found.exit_code, found.summary["test_accuracy"]) == (0, metrics["test_accuracy"])
    assert "Tracking ends here, the work goes on: RuntimeError: no picture" in capfd.readouterr().err
