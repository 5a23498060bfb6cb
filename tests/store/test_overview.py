"""The store at a glance, and `lmsweep status`."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from lmsweep.commands import status
from lmsweep.store.overview import overview, sweeps
from lmsweep.store.store import Store
from lmsweep.store.sweeps import record_sweep, runs_of
from tests.config.test_run import config

ABOUT = {"method": "xent", "data": "digits", "label_noise": 0.2, "fraction": 1.0, "seed": 1}
METRICS = {"val_accuracy": 0.5, "test_accuracy": 0.25}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    store.claim("a-done", {}, ABOUT).finish({"seconds": 2.0, "metrics": METRICS})
    store.claim("b-failed", {}, ABOUT).fail("it broke", "")
    store.submit("c-pending", {}, ABOUT)
    store.claim("d-running", {}, ABOUT)
    gone = store.claim("e-abandoned", {}, ABOUT)
    gone.status.write_text(json.dumps({**gone.read_status(), "pid": 2**22 + 1}))
    store.claim("f-damaged", {}, ABOUT).status.write_text("{")
    return store


def call(capsys, tmp_path, *arguments):
    status.main(["--outputs", str(tmp_path), *arguments])
    return capsys.readouterr().out


def test_every_state_is_told(store, tmp_path):
    rows = {row["run"]: row for row in overview(tmp_path)}
    assert [row["state"] for row in rows.values()] == [name.split("-")[1] for name in rows]
    assert rows["a-done"]["test_accuracy"] == 0.25
    assert rows["b-failed"]["reason"] == "it broke"
    assert rows["d-running"]["host"] == socket.gethostname()


def test_the_page_has_counts_and_a_line_per_run_with_what_matters_first(store, tmp_path, capsys):
    lines = call(capsys, tmp_path).splitlines()
    assert lines[0] == (
        f"6 runs in {tmp_path}  1 done  1 running  1 failed  1 pending  1 abandoned  1 damaged"
    )
    assert [line.split()[1] for line in lines[2:]] == [
        *("running", "failed", "damaged", "abandoned"),
        *("done", "pending"),
    ]
    assert "xent digits label_noise=0.2 seed=1  validation 50.00%  test 25.00%" in "\n".join(lines)


def test_filters_and_json(store, tmp_path, capsys):
    assert [row["run"] for row in json.loads(call(capsys, tmp_path, "--failed", "--json"))["runs"]] == [
        "b-failed"
    ]
    runs = [config(f"seed={seed}", f"outputs={tmp_path}").id for seed in (0, 1)]
    record_sweep(tmp_path, runs, "fig2_mnist_noise", "smoke")
    record_sweep(tmp_path, runs, "fig2_mnist_noise", "smoke")
    assert runs_of(tmp_path, "fig2_mnist_noise") == set(runs)
    store.submit(runs[0], {}, ABOUT)
    rows = overview(tmp_path)
    assert sweeps(tmp_path, rows) == [("fig2_mnist_noise-smoke", {"pending": 1, "missing": 1})]
    answer = json.loads(call(capsys, tmp_path, "--json", "--sweep", "fig2_mnist_noise"))
    assert {row["run"] for row in answer["runs"]} == set(runs)


def test_an_unknown_sweep_is_named(store, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        call(capsys, tmp_path, "--sweep", "nope")
    assert stopped.value.code == 1
    assert "There is no sweep nope" in capsys.readouterr().err


def test_an_empty_store_is_no_error(tmp_path, capsys):
    assert call(capsys, tmp_path / "none").startswith("0 runs")


@pytest.fixture
def memory():
    """A folder in memory where there is such a thing: a disk can take minutes to delete 20,000 files."""
    shared = Path("/dev/shm")  # noqa: S108 - a folder of our own is made inside
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


def test_ten_thousand_runs_in_two_seconds(memory):
    results = json.dumps({"seconds": 2.0, "metrics": METRICS, "provenance": {"commit": "0" * 40}})
    done = json.dumps({"state": "done", "attempt": 1, "about": ABOUT}, indent=2)
    for number in range(10_000):
        folder = memory / "runs" / f"{number:012x}"
        folder.mkdir(parents=True)
        (folder / "status.json").write_text(done)
        (folder / "results.json").write_text(results)
    command = [sys.executable, "-m", "lmsweep", "status", "--outputs", str(memory)]
    took = []
    for _ in range(3):  # the fastest of three, because other tests run at the same time
        started = time.monotonic()
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        took.append(time.monotonic() - started)
    assert "10000 done" in answer.stdout
    assert min(took) < 2.0, took
