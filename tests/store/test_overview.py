"""The store at a glance, and `lmsweep status`."""

import ast
import json
import socket
import subprocess
import sys
from collections import Counter

import pytest

from lmsweep.commands.store import status_command
from lmsweep.store.overview import overview, sweeps
from lmsweep.store.store import Store
from lmsweep.store.sweeps import record_sweep, runs_of
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


# Prints how often each kind of file below a folder is opened, and how often a folder is listed.
COUNTING = """
import sys
from collections import Counter
from pathlib import Path
from lmsweep.commands.store import status_command

outputs, seen = sys.argv[1], Counter()

def listen(event, arguments):
    if event in ("open", "os.scandir", "os.listdir") and str(arguments[0]).startswith(outputs):
        seen[Path(str(arguments[0])).name if event == "open" else "listed"] += 1

sys.addaudithook(listen)
status_command(["--outputs", outputs])
print(dict(seen), file=sys.stderr)
"""


def test_a_store_is_read_once_whatever_its_size(tmp_path):
    """Twice for the status, which is looked at for Slurm jobs first; `make bench` has the seconds."""
    counts = []
    for size in (50, 200):
        outputs = tmp_path / str(size)
        for number in range(size):
            Store(outputs).lease(f"{number:012x}", {}, ABOUT).finish({"seconds": 2.0, "metrics": METRICS})
        command = [sys.executable, "-c", COUNTING, str(outputs)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"{size} done" in answer.stdout
        counts.append(Counter(ast.literal_eval(answer.stderr)))
    assert counts[0]["listed"] == counts[1]["listed"] > 0
    more = counts[1] - counts[0]
    assert more.keys() == {"status.json", "results.json"}
    assert more["status.json"] <= 2 * 150
    assert more["results.json"] <= 150
