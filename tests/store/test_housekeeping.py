"""`lmsweep store`: what is deleted, what stays, what is exported."""

import json

import pandas as pd
import pytest
import yaml

from lmsweep.commands import store as command
from lmsweep.store.store import Store
from tests.config.test_run import config

METRICS = {"val_accuracy": 0.5, "test_accuracy": 0.25}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    for name, keys in (("used", ("seed=1",)), ("unused", ("margin.gamma=[1,2,3,4,5]",))):
        one = config(*keys)
        folder = store.lease(name, one.to_dict(), one.about())
        folder.checkpoint.write_bytes(b"x" * 1000)
        folder.finish({"seconds": 2.0, "metrics": METRICS})
    store.lease("broken", config().to_dict(), config().about()).fail("it broke", "")
    (store.folder("broken").path / ".results.json.1.tmp").write_text("half")
    busy = store.lease("busy", config().to_dict(), config().about())
    busy.checkpoint.write_bytes(b"x" * 1000)
    evaluations = Store(tmp_path, "evaluations")
    evaluations.lease("e-used", {"targets": ["used"], "source": None}).finish({})
    evaluations.lease("e-broken", {"targets": ["used"], "source": "broken"}).finish({})
    return store


def call(capsys, tmp_path, *arguments):
    command.store_command([*arguments, "--outputs", str(tmp_path)])
    return capsys.readouterr().out.strip()


def refused(capsys, tmp_path, *arguments):
    with pytest.raises(SystemExit) as stopped:
        call(capsys, tmp_path, *arguments)
    assert stopped.value.code == 1
    return capsys.readouterr().err.strip()


def test_gc_keeps_what_figures_use_and_what_is_running(store, tmp_path, capsys):
    assert "no figure" in refused(capsys, tmp_path, "gc")
    record = tmp_path / "figures" / "smoke" / "fig2.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"runs": ["used"]}))
    grave = store.folder("unused").path.with_name(".removed-gone-1")  # of a process killed while it deleted
    grave.mkdir()
    (grave / "log.txt").write_text("x")
    assert call(capsys, tmp_path, "gc", "--dry-run") == "3 files would be deleted, 0.0 MB"
    assert store.folder("unused").checkpoint.exists()
    assert call(capsys, tmp_path, "gc") == "3 files deleted, 0.0 MB"
    assert not grave.exists()
    kept = [folder.id for folder in store.folders() if folder.checkpoint.exists()]
    assert kept == ["busy", "used"]
    assert store.folder("unused").read_results()["metrics"] == METRICS
    assert not list(tmp_path.rglob("*.tmp"))


def test_rm_deletes_runs_with_the_evaluations_that_used_them(store, tmp_path, capsys):
    assert call(capsys, tmp_path, "rm", "--failed", "--dry-run") == (
        "1 runs and 1 evaluations would be deleted"
    )
    assert call(capsys, tmp_path, "rm", "--failed") == "1 runs and 1 evaluations deleted"
    assert [folder.id for folder in store.folders()] == ["busy", "unused", "used"]
    assert [folder.id for folder in Store(tmp_path, "evaluations").folders()] == ["e-used"]
    assert call(capsys, tmp_path, "rm", "used") == "1 runs and 1 evaluations deleted"


def test_rm_refuses_what_it_should(store, tmp_path, capsys):
    assert "Nothing to delete" in refused(capsys, tmp_path, "rm")
    assert "There is no run nope" in refused(capsys, tmp_path, "rm", "used", "nope")
    assert "is being trained" in refused(capsys, tmp_path, "rm", "used", "busy")
    assert store.folder("used").path.exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_export_has_a_row_per_run_with_configuration_and_results(store, tmp_path, capsys, kind):
    file = tmp_path / f"runs.{kind}"
    assert call(capsys, tmp_path, "export", str(file)) == f"{file}  4 runs"
    table = (pd.read_csv if kind == "csv" else pd.read_parquet)(file).set_index("run")
    assert table.loc["used", "test_accuracy"] == 0.25
    assert table.loc["used", "config.seed"] == 1
    assert table.loc["unused", "config.margin.gamma"] == "[1.0, 2.0, 3.0, 4.0, 5.0]"
    assert table.loc["broken", "reason"] == "it broke"
    names = set(yaml.safe_load(store.folder("used").config.read_text()))
    assert names <= {column.split(".")[1] for column in table if column.startswith("config.")}


def test_export_names_what_it_cannot_write(store, tmp_path, capsys):
    assert ".csv or .parquet" in refused(capsys, tmp_path, "export", str(tmp_path / "runs.xlsx"))
