"""Sweeps with real processes: killed, stopped, two at once, on a full disk, with runs that fail."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress

import psutil
import pytest
import yaml

from lmsweep.config.hydra import config_folder
from lmsweep.store.sweeps import runs_of
from tests.sweep.sweeping import (
    TINY,
    folders,
    metrics,
    running,
    start,
    start_afresh,
    states,
    statuses,
    sweep,
    wait_until,
)
from tests.warm import completed

# Long enough to be hit, with what an interruption could spoil: dropout and momentum.
TWELVE = (
    *TINY[1:],
    "trainer.max_steps=150",
    "model.dropout=0.2",
    "method=xent,margin",
    "seed=range(6)",
)


@pytest.fixture(scope="module")
def undisturbed(made_once):
    def make(outputs):
        done = sweep(outputs, *TWELVE)
        assert done.returncode == 0, done.stderr
        assert states(outputs) == ["done"] * 12
        return metrics(outputs)

    return made_once("undisturbed", make)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_results_bit_for_bit(undisturbed, tmp_path):
    moments = random.Random(0)
    finished: dict[str, int] = {}

    def look() -> None:
        """What is done stays as it is: no run is completed twice."""
        for folder in folders(tmp_path):
            if json.loads((folder / "status.json").read_text())["state"] == "done":
                written = (folder / "results.json").stat().st_mtime_ns
                assert finished.setdefault(folder.name, written) == written

    for _ in range(5):
        parent = start(tmp_path, *TWELVE)
        # New claims only: those of the killed processes are still in the store.
        wait_until(lambda: any(psutil.pid_exists(pid) for pid in running(tmp_path)))
        time.sleep(moments.uniform(0, 0.4))
        for pid in running(tmp_path)[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(moments.uniform(0, 0.6))
        parent.kill()
        completed(parent)
        look()
    assert len(finished) < 12, "the kills came too late to disturb anything"
    done = sweep(tmp_path, *TWELVE)
    assert done.returncode == 0, done.stderr
    look()
    assert len(finished) == 12
    assert sum(status["attempt"] for status in statuses(tmp_path).values()) > 12
    assert metrics(tmp_path) == undisturbed


@pytest.mark.slow
def test_two_sweeps_at_once_share_the_work(undisturbed, tmp_path):
    both = [start(tmp_path, *TWELVE) for _ in range(2)]
    for done in map(completed, both):
        assert done.returncode == 0, done.stderr
    # Every claim is an attempt: twelve of them for twelve runs.
    assert sum(status["attempt"] for status in statuses(tmp_path).values()) == 12
    assert metrics(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("how", "exit_status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_stopped_it_gives_everything_back_and_goes_on_later(request, tmp_path, how, exit_status):
    parent = start_afresh(tmp_path, *TWELVE)
    wait_until(lambda: running(tmp_path))
    workers = running(tmp_path)
    parent.send_signal(how)
    stopped = completed(parent)
    assert stopped.returncode == exit_status, stopped.stderr
    assert stopped.stderr.strip().splitlines()[-1].startswith("Stopped; the same command goes on")
    assert "Traceback" not in stopped.stderr
    assert set(states(tmp_path)) <= {"pending", "done"}
    assert "pending" in states(tmp_path)
    assert not any(psutil.pid_exists(pid) for pid in workers)
    if how == signal.SIGTERM:
        done = sweep(tmp_path, *TWELVE)
        assert done.returncode == 0, done.stderr
        assert metrics(tmp_path) == request.getfixturevalue("undisturbed")


@pytest.mark.slow
def test_failing_runs_stop_no_other_and_are_listed_with_their_reasons(tmp_path):
    grid = (
        *TINY,
        "method=xent",
        "model._target_=lmsweep.models.ConvNet,tests.sweep.raising.Raising",
        "optimizer.lr=0.01,1e30",
    )
    done = sweep(tmp_path, *grid)
    assert done.returncode == 1
    assert states(tmp_path) == ["done", "failed", "failed", "failed"]
    reasons = {name: s["reason"] for name, s in statuses(tmp_path).items() if s["state"] == "failed"}
    assert sorted(reasons.values()) == [
        "ArithmeticError: the network broke",
        "ArithmeticError: the network broke",
        "the loss was nan at step 10: training diverged",
    ]
    for name, reason in reasons.items():
        row = next(line for line in done.stderr.splitlines() if name in line and "│" in line)
        assert reason in row
        assert str(tmp_path / "runs" / name / "error.txt") in row
    assert done.stderr.splitlines()[-1] == "3 of 4 runs failed; the others are complete."
    assert "Traceback" not in done.stderr

    def attempts() -> list[int]:
        order = sorted(reasons, key=lambda name: "diverged" in reasons[name])
        return [statuses(tmp_path)[name]["attempt"] for name in order]

    assert attempts() == [1, 1, 1]
    for arguments, expected in (
        ([], [2, 2, 1]),  # what diverged would diverge again
        (["force=true"], [3, 3, 2]),
    ):
        again = sweep(tmp_path, *grid, *arguments)
        assert again.returncode == 1
        assert "3 of 4 runs failed" in again.stderr
        assert attempts() == expected


RAISING = (*TINY, "method=xent", "model._target_=tests.sweep.raising.Raising", "seed=range(14)")


@pytest.mark.slow
def test_a_sweep_that_only_fails_is_stopped_and_says_why_in_a_sentence(tmp_path):
    done = sweep(tmp_path, *RAISING, "hydra.launcher.jobs=2")
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    reason = "ArithmeticError: the network broke"
    assert sentence.startswith(f"Stopped, because the first 10 runs all failed for one reason: {reason} (")
    assert "4 more were not tried" in sentence
    assert "Traceback" not in done.stderr
    # Runs that were under way are given back, or failed before they could be.
    assert set(states(tmp_path)) == {"failed", "pending"}
    assert 10 <= states(tmp_path).count("failed") < 14
    again = sweep(tmp_path, *RAISING, "seed=0,1,2", "hydra.launcher.max_failures=2")
    assert "Stopped, because the first 2 runs" in again.stderr
    to_the_end = sweep(tmp_path, *RAISING, "hydra.launcher.max_failures=null")
    assert to_the_end.stderr.splitlines()[-1] == "14 of 14 runs failed; the others are complete."
    refused = sweep(tmp_path, *RAISING, "hydra.launcher.max_failures=0")
    assert refused.stderr.startswith(
        "hydra.launcher.max_failures=0 is not allowed: it must be a whole number >= 1"
    )


@pytest.mark.slow
def test_a_run_whose_process_keeps_dying_fails_with_that_reason(tmp_path):
    grid = (*TINY, "trainer.max_steps=100000", "seed=0", "hydra.launcher.jobs=1")
    parent = start(tmp_path, *grid)
    for attempt in (1, 2, 3):
        wait_until(
            lambda n=attempt: [s["attempt"] for s in statuses(tmp_path).values()] == [n] and running(tmp_path)
        )
        os.kill(running(tmp_path)[0], signal.SIGKILL)
    done = completed(parent)
    assert done.returncode == 1
    (status,) = statuses(tmp_path).values()
    assert status["state"] == "failed"
    assert "died 3 times, the last time by signal 9 (SIGKILL)" in status["reason"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_stops_the_sweep_clearly_and_it_goes_on_when_there_is_room(undisturbed, small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 400_000))
    full = sweep(small_disk, *TWELVE)
    assert full.returncode == 1
    last = full.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{small_disk} cannot be written (No space left on device): make room")
    assert "Traceback" not in full.stderr
    assert "failed" not in states(small_disk)
    assert 0 < states(small_disk).count("done") < 12
    for folder in folders(small_disk):
        yaml.safe_load((folder / "config.yaml").read_text())
        if (folder / "results.json").exists():
            json.loads((folder / "results.json").read_text())
        assert not list(folder.glob(".*.tmp"))
    ballast.unlink()
    done = sweep(small_disk, *TWELVE)
    assert done.returncode == 0, done.stderr
    assert metrics(small_disk) == undisturbed


@pytest.mark.slow
def test_editing_conf_does_not_change_queued_runs(tmp_path):
    conf = tmp_path / "conf"
    shutil.copytree(config_folder(), conf, symlinks=False)
    outputs = tmp_path / "outputs"
    parent = start(outputs, "--config-path", str(conf), *TINY, "hydra.launcher.jobs=1", "seed=range(4)")
    wait_until(lambda: running(outputs))
    config = conf / "config.yaml"
    config.write_text(config.read_text().replace("gamma: 1.0", "gamma: 7.0"))
    trainer = conf / "trainer" / "default.yaml"
    trainer.write_text(trainer.read_text().replace("precision: 32-true", "precision: nonsense"))
    assert "pending" in states(outputs)
    assert completed(parent).returncode == 0
    gammas = [yaml.safe_load((f / "config.yaml").read_text())["margin"]["gamma"] for f in folders(outputs)]
    assert gammas == [1.0] * 4
    assert states(outputs) == ["done"] * 4


@pytest.mark.slow
def test_repeats_are_dropped_and_finished_runs_are_not_started_again(tmp_path):
    grid = (*TINY, "method=xent,margin", "margin.gamma=1,2", "seed=0,1")
    first = sweep(tmp_path, *grid)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("6 runs (8 jobs, 2 of them repeats): 6 done, in ")
    lines = [line for line in first.stderr.splitlines() if line.startswith("[")]
    ends = [line for line in lines if "] running: " not in line]  # said when a busy machine takes long
    assert [line[:5] for line in ends] == [f"[{n}/6]" for n in range(1, 7)]
    again = sweep(tmp_path, *grid, "seed=0,1,2", "name=my_idea")
    assert len(runs_of(tmp_path, "my_idea")) == 9
    assert again.stdout.startswith("9 runs (12 jobs, 3 of them repeats): 3 done, 6 cached, in ")
    assert sum(status["attempt"] for status in statuses(tmp_path).values()) == 9


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_stock_launchers_run_the_same_and_are_idempotent(tmp_path, launcher):
    grid = (*TINY, "seed=0,1", f"hydra/launcher={launcher}")

    def call(*words):
        # joblib ends its workers when an interpreter ends, and a forked one leaves without that.
        return completed((start_afresh if launcher == "joblib" else start)(tmp_path, *words))

    first = call(*grid)
    assert first.returncode == 0, first.stderr
    assert states(tmp_path) == ["done", "done"]
    again = call(*grid)
    assert again.returncode == 0, again.stderr
    assert sorted(again.stdout.splitlines()) == sorted(first.stdout.splitlines())
    ours = sweep(tmp_path, *TINY, "seed=0,1")
    assert "2 cached" in ours.stdout
    if launcher == "joblib":  # repeats at the same time: one waits for the other
        repeats = call(*grid, "method=xent", "seed=7", "margin.gamma=1,4")
        assert repeats.returncode == 0, repeats.stderr
        assert len(set(repeats.stdout.splitlines())) == 1
        return
    failing = call(*grid, "method=xent", "optimizer.lr=1e30,0.01")
    assert failing.returncode == 1
    assert states(tmp_path) == ["done"] * 4 + ["failed"] * 2
    assert "diverged" in failing.stderr


@pytest.mark.slow
def test_a_bad_value_anywhere_in_the_grid_is_named_before_any_work(tmp_path):
    for grid, sentence in (
        (("margin.gamma=1,0",), "margin.gamma=0 is not allowed"),
        (("method=xent,nope",), "method=nope is not allowed"),
        (("name='my idea'",), "name=my idea is not allowed: it must be a letter, then letters"),
        (("retry=sometimes",), "retry=sometimes is not allowed: it must be failed or none"),
        (("hydra.launcher.jobs=0",), "hydra.launcher.jobs=0 is not allowed"),
        (("outputs=a,b",), "outputs cannot be swept"),
    ):
        done = sweep(tmp_path / "store", *TINY, *grid)
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "store" / "runs").exists()


@pytest.mark.slow
def test_a_rehearsal_says_what_would_be_done_and_does_nothing(tmp_path):
    grid = (*TINY, "method=xent,margin", "seed=0,1,2")
    nothing = sweep(tmp_path / "empty", *grid, "dry_run=true")
    assert nothing.returncode == 0, nothing.stderr
    assert not (tmp_path / "empty").exists()
    assert "To train: 6 of 6 runs, about " in nothing.stdout
    assert sweep(tmp_path, *TINY, "method=xent", "seed=0,1").returncode == 0
    some = sweep(tmp_path, *grid, "dry_run=true")
    cells = [line.split()[:6] for line in some.stdout.splitlines()[:4]]
    assert cells[1:] == [
        ["xent", "1", "3", "2", "0", "1"],
        ["margin_l2_all", "1", "3", "0", "0", "3"],
        ["all", "2", "6", "2", "0", "4"],
    ]
    assert "To train: 4 of 6 runs" in some.stdout
    assert states(tmp_path) == ["done", "done"]
    # A run that cannot be tried out is told as that, and hides no other (of width 2 there are past runs).
    odd = sweep(tmp_path, *TINY, "method=xent", "model.width=2,3", "optimizer.lr=1e30", "dry_run=true")
    assert odd.returncode == 0, odd.stderr
    assert "1 that could not be estimated" in odd.stdout
    assert odd.stderr.count("A run that was to be timed ended: ") == 1
    assert "loss" in odd.stderr
