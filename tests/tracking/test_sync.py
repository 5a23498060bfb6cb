"""`make sync` with W&B's real uploader and a server on this machine: everything once, whatever breaks."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import pytorch_lightning as pl

from lmsweep.commands.jobs import training_job
from lmsweep.commands.wandb import look, sync, sync_command
from lmsweep.errors import UserError
from lmsweep.store.job import run_job
from lmsweep.tracking.wandb_run import CARD, LOCK
from lmsweep.training.run import prepare_run
from tests.config.test_run import config
from tests.tracking.reading import files_of, read_back, rows
from tests.tracking.wandb_server import WRONG_KEY, nobody_there, wandb_server


class StoppedAt(pl.Callback):
    """Ctrl-C after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step == self.step:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, tracked_sweep):
    """The files of a sweep, and of a run that was stopped and went on; its id comes first."""
    outputs = tmp_path_factory.mktemp("recorded")
    shutil.copytree(tracked_sweep.outputs / "wandb", outputs / "wandb")
    short = ("method=xent", "trainer.max_steps=40", "trainer.val_every=10", "trainer.log_every=5")
    stopped = config(*short, "model.width=2", "tracking=wandb", f"outputs={outputs}")
    job = prepare_run(stopped)
    job.telemetry = StoppedAt(27)
    with pytest.raises(KeyboardInterrupt):
        run_job(training_job(stopped, job))
    name = run_job(training_job(stopped))["id"]
    return outputs, name, [name, *tracked_sweep.done, *tracked_sweep.failed]


def test_a_run_that_goes_on_has_one_id_and_its_newest_file_is_whole(recorded):
    outputs, name, _ = recorded
    first, second = map(read_back, files_of(outputs, name))
    assert first.run["run_id"] == second.run["run_id"] == name
    assert (first.exit_code, first.preempting, second.exit_code, second.preempting) == (1, True, 0, False)
    assert first.history[-1]["step"] == 25
    told = [{k: v for k, v in row.items() if "." not in k} for row in second.history]
    assert told == rows(outputs / "runs" / name / "metrics.jsonl")
    assert told[0]["step"] == 5


def said_by_sync(outputs, stall=600, **about):
    """What `lmsweep sync` says, in a process whose W&B knows nothing but `about`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    environment |= {"HOME": str(outputs), **about}
    words = [sys.executable, "-m", "lmsweep", "sync", "--outputs", str(outputs), "--stall", str(stall)]
    called = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert called.returncode == (0 if called.stdout else 1)
    return called.stdout or called.stderr


def test_without_a_server_or_a_key_one_sentence_says_so_and_nothing_else(recorded):
    """Before the uploader starts, whose answer would be a traceback, or minutes of silence."""
    outputs, _, _ = recorded
    refused = said_by_sync(outputs, WANDB_BASE_URL=nobody_there())
    assert re.fullmatch(r"The W&B server \S+ does not answer \(.*refused\): .*\n", refused)
    with wandb_server() as server:
        nameless = said_by_sync(outputs, WANDB_BASE_URL=server.url)
        assert nameless.startswith(f"W&B has no key for {server.url}: call `wandb login`")
        wrong = said_by_sync(outputs, **server.environment(WRONG_KEY))
        assert wrong.startswith(f"W&B has no key for {server.url} (")
        assert nameless.count("\n") == wrong.count("\n") == 1
        server.behaviour = "hang"
        answer = said_by_sync(outputs, **server.environment())
        assert re.fullmatch(r"The W&B server \S+ does not answer \(nothing within 3 s\): .*\n", answer)


@pytest.mark.slow
def test_everything_is_uploaded_once_though_the_server_breaks_on_the_way(recorded, capsys):
    outputs, name, names = recorded
    with wandb_server() as server:
        about = server.environment()
        server.behaviour = "hang on runs"
        assert "W&B took 0 of 3 runs" in said_by_sync(outputs, stall=2, **about)
        server.behaviour, server.only = "accept", name
        assert "W&B took 1 of 3 runs" in said_by_sync(outputs, **about)
        assert server.uploads == {name: 1}
        server.only = None
        assert said_by_sync(outputs, **about).startswith("2 runs uploaded")
        assert server.uploads == dict.fromkeys(names, 1)
        asked = len(server.requests)
        sync_command(["--outputs", str(outputs)])
        assert "0 runs to upload" in capsys.readouterr().out
        assert len(server.requests) == asked
    lines = [line["step"] for line in server.runs[name]["lines"]]
    assert (
        lines
        == sorted(set(lines))
        == [row["step"] for row in rows(outputs / "runs" / name / "metrics.jsonl")]
    )
    exits = {other: server.runs[other]["exitcode"] for other in names}
    assert sorted(exits.values()) == [0, 0, 1]
    there = json.loads(server.runs[name]["config"])
    assert there["run_id"]["value"] == name


def test_a_run_that_is_being_written_is_left_for_later(recorded):
    outputs, name, _ = recorded
    folder = files_of(outputs, name)[-1].parent
    marks = list(folder.glob("*.synced"))
    for mark in marks:
        mark.unlink()
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert look(outputs / "wandb").busy == [folder]
    assert folder in look(outputs / "wandb").waiting


def test_artifacts_that_stayed_behind_are_named_and_not_lost(recorded, tmp_path):
    outputs, name, _ = recorded
    folder = files_of(outputs, name)[-1].parent
    moved = tmp_path / "wandb" / folder.name
    shutil.copytree(folder, moved)
    for mark in moved.glob("*.synced"):
        mark.unlink()
    card = json.loads((moved / CARD).read_text())
    assert Path(card["staging"]) == outputs / "wandb"
    (moved / CARD).write_text(json.dumps({**card, "staging": "/not/here/wandb"}))
    with pytest.raises(UserError, match=f"ln -s {tmp_path}/wandb /not/here/wandb puts it right"):
        sync(tmp_path, stall=1)
