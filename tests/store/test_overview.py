"""The store at a glance, and `lmsweep status`."""

import ast
import json
import socket
import subprocess
import sys

import pytest

from lmsweep.commands.store import status_command
from lmsweep.store.store import INDEX, Store, overview
from lmsweep.store.sweeps import record_sweep, runs_of, states_by_sweep
from tests.config.test_run import config

ABOUT = {"method": "xent", "data": "digits", "label_noise": 0.2, "fraction": 1.0, "seed": 1}
METRICS = {"val_accuracy": 0.5, "test_accuracy": 0.25}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    store.lease("a-done", {}, ABOUT).finish({"seconds": 2.0, "metrics": METRICS})
    store.lease("b-failed", {}, ABOUT).fail("it broke", "")
    store.submit("c-pending", {}, ABOUT)
    store.lease("d-running", {}, ABOUT)
    gone = store.lease("e-abandoned", {}, ABOUT)
    gone.status.write_text(json.dumps({**gone.read_status(), "pid": 2**22 + 1}))
    store.lease("f-damaged", {}, ABOUT).status.write_text("{")
    return store


def call(capsys, tmp_path, *arguments):
    status_command(["--outputs", str(tmp_path), *arguments])
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
        *("pending", "done"),
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
    assert states_by_sweep(tmp_path, rows, []) == [("fig2_mnist_noise-smoke", {"pending": 1, "missing": 1})]
    answer = json.loads(call(capsys, tmp_path, "--json", "--sweep", "fig2_mnist_noise"))
    assert {row["run"] for row in answer["runs"]} == set(runs)


def test_an_unknown_sweep_is_named(store, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        call(capsys, tmp_path, "--sweep", "nope")
    assert stopped.value.code == 1
    assert "There is no sweep nope" in capsys.readouterr().err


def test_an_empty_store_is_no_error(tmp_path, capsys):
    assert call(capsys, tmp_path / "none").startswith("0 runs")


# Asks twice, and prints what the second answer opens below a folder, and how often a folder is listed.
COUNTING = """
import sys
from collections import Counter
from pathlib import Path
from lmsweep.commands.store import status_command
from lmsweep.store import store

outputs, seen = sys.argv[1], Counter()

def listen(event, arguments):
    if event in ("open", "os.scandir", "os.listdir") and str(arguments[0]).startswith(outputs):
        seen[Path(str(arguments[0])).name if event == "open" else "listed"] += 1

store.SETTLED_NANOSECONDS = 0
status_command(["--outputs", outputs])
sys.addaudithook(listen)
status_command(["--outputs", outputs])
print(dict(seen), file=sys.stderr)
"""


def test_a_store_that_has_not_changed_is_not_read_again_whatever_its_size(tmp_path):
    """The index is read twice, for Slurm jobs first; `make bench` has the seconds."""
    counts = []
    for size in (5, 50):
        outputs = tmp_path / str(size)
        for number in range(size):
            Store(outputs).lease(f"{number:012x}", {}, ABOUT).finish({"seconds": 2.0, "metrics": METRICS})
        command = [sys.executable, "-c", COUNTING, str(outputs)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        assert answer.stdout.count(f"{size} done") == 2
        counts.append(ast.literal_eval(answer.stderr))
    assert counts[0] == counts[1]
    assert counts[0].keys() == {"listed", ".index.json"}


@pytest.fixture
def at_once(monkeypatch):
    """Rows are kept however young their files are."""
    monkeypatch.setattr("lmsweep.store.store.SETTLED_NANOSECONDS", 0)


def test_the_index_is_made_again_when_it_is_missing_stale_or_damaged(store, tmp_path, at_once):
    rows = overview(tmp_path)
    path = store.root / INDEX
    whole = path.read_text()
    for content in (None, "", "[]", whole[:100], whole.replace("0.25", "0.75"), '{"version": 0, "rows": {}}'):
        path.unlink()
        if content is not None:
            path.write_text(content)
        again = overview(tmp_path)
        assert [{**row, "seconds": 0} for row in again] == [{**row, "seconds": 0} for row in rows]
    changed = store.lease("a-done", {}, ABOUT, force=True)
    assert {row["run"]: row["state"] for row in overview(tmp_path)}["a-done"] == "running"
    changed.finish({"seconds": 2.0, "metrics": {**METRICS, "test_accuracy": 0.125}})
    assert overview(tmp_path)[0]["test_accuracy"] == 0.125
    changed.results.write_text(changed.results.read_text().replace("0.125", "0.925"))
    assert overview(tmp_path)[0]["state"] == "damaged"
    assert store.remove("a-done")
    assert "a-done" not in {row["run"] for row in overview(tmp_path)}


def test_a_file_that_has_just_been_written_is_not_kept_in_the_index(store, tmp_path):
    overview(tmp_path)
    content = json.loads((store.root / INDEX).read_text()) if (store.root / INDEX).exists() else {}
    assert content.get("rows", {}) == {}
