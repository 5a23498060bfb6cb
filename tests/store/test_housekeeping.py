"""`lmsweep store`: what is deleted, what stays, what is exported."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from lmsweep.commands import store as command
from lmsweep.store.housekeeping import drop_weights, usage
from lmsweep.store.store import Store
from lmsweep.store.sweeps import record_sweep, runs_of
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


def test_du_says_what_takes_room(store, tmp_path, capsys):
    record_sweep(tmp_path, ["used", "unused", "gone"], "fig", "smoke")
    told = call(capsys, tmp_path, "du").splitlines()
    sizes = {line.split("MB  ")[1]: float(line.split()[0]) for line in told if "MB" in line}
    everything = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert told[0].endswith(str(tmp_path))
    assert sizes[str(tmp_path)] == round(everything / 1e6, 1)
    assert {"runs: checkpoints  (3 files)", "fig-smoke  (2 runs)"} <= sizes.keys()
    _, by_sweep = usage(tmp_path)
    mine = [path for name in ("used", "unused") for path in store.folder(name).path.iterdir()]
    assert by_sweep == {"fig-smoke": (2, sum(path.stat().st_size for path in mine))}


def test_weights_are_dropped_unless_a_drawn_figure_uses_them(store, tmp_path):
    record = tmp_path / "figures" / "smoke" / "fig.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"runs": ["used"]}))
    assert drop_weights(tmp_path, ["used", "busy", "broken"]) == (0, 0)
    assert drop_weights(tmp_path, ["used", "unused", "busy"]) == (1, 1000)
    assert not store.folder("unused").checkpoint.exists()
    record.with_name("other.json").write_text("{")
    assert drop_weights(tmp_path, ["used"], record) == (0, 0), "a damaged record may use it"
    record.with_name("other.json").unlink()
    assert drop_weights(tmp_path, ["used"], record) == (1, 1000)
    assert store.folder("used").read_results() is not None


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
    assert call(capsys, tmp_path, "rm", "use", "--dry-run").startswith("1 runs and 2 evaluations")
    assert "u is the beginning of 2 runs (unused, used" in refused(capsys, tmp_path, "rm", "u")
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


def figure_of(tmp_path, *runs, content=None):
    record = tmp_path / "figures" / "smoke" / "fig2.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"runs": list(runs)}) if content is None else content)
    return record


def test_links_are_not_followed_out_of_the_store(store, tmp_path, capsys, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "runs").mkdir()
    foreign = Store(outside).lease("mine", config().to_dict(), config().about())
    foreign.checkpoint.write_bytes(b"x")
    foreign.finish({"seconds": 2.0, "metrics": METRICS})
    (store.root / "linked").symlink_to(foreign.path)
    secret = outside / "secret.txt"
    secret.write_text("mine")
    folder = store.folder("unused")
    folder.checkpoint.unlink()
    folder.checkpoint.symlink_to(secret)
    (folder.path / ".x.tmp").symlink_to(secret)
    (store.root / ".removed-x").symlink_to(outside)
    figure_of(tmp_path, "used")
    call(capsys, tmp_path, "gc")
    assert not folder.checkpoint.is_symlink()
    assert (secret.read_text(), foreign.checkpoint.read_bytes()) == ("mine", b"x")
    (folder.path / "more").symlink_to(outside)
    assert call(capsys, tmp_path, "rm", "unused", "linked") == "2 runs and 0 evaluations deleted"
    assert (secret.read_text(), foreign.checkpoint.read_bytes()) == ("mine", b"x")
    assert not (store.root / "linked").is_symlink()


@pytest.mark.parametrize("name", ["..", "../evaluations", "/etc", ".lock", "", "a/b", "used/"])
def test_what_is_no_id_is_refused(store, tmp_path, capsys, name):
    assert f"{name!r} is no id" in refused(capsys, tmp_path, "rm", name)
    assert (tmp_path / "evaluations").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"runs": 3}', "{"])
def test_while_a_figures_record_is_damaged_no_checkpoint_is_deleted(store, tmp_path, capsys, content):
    record = figure_of(tmp_path, content=content)
    told = call(capsys, tmp_path, "gc").splitlines()
    assert told[0].startswith(f"{record} is damaged")
    assert "draw it again" in told[0]
    assert told[-1] == "1 files deleted, 0.0 MB"  # what a killed process left
    assert store.folder("unused").checkpoint.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"sweep": "fig2", "scale": null, "runs": ["../x"]}'])
def test_a_damaged_record_of_a_sweep_is_told_and_written_again(store, tmp_path, capsys, content):
    path = record_sweep(tmp_path, ["used", "unused"], "fig2", "smoke")
    other = record_sweep(tmp_path, ["used"], "fig3", "smoke")
    path.write_text(content)
    command.status_command(["--outputs", str(tmp_path)])
    told = capsys.readouterr().out.splitlines()
    assert "fig3-smoke  1 done" in told
    assert sum(line.startswith(f"{path} is damaged") for line in told) == 1
    assert call(capsys, tmp_path, "rm", "--sweep", "fig3", "--dry-run").startswith("1 runs")
    assert f"{path} is damaged" in refused(capsys, tmp_path, "rm", "--sweep", "fig2")
    assert record_sweep(tmp_path, ["used", "unused"], "fig2", "smoke") == path
    assert runs_of(tmp_path, "fig2") == {"used", "unused"}
    assert other.exists()


READ_ONLY = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


@pytest.mark.slow
def test_a_store_that_may_only_be_read_is_read_and_not_told_to_make_room(store, tmp_path):
    script = f'mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && exec "$0" "$@"'
    if subprocess.run([*READ_ONLY, script, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    environment = {**os.environ, "LMSWEEP_OUTPUTS": str(tmp_path)}

    def lmsweep(*words):
        command = [*READ_ONLY, script, sys.executable, "-m", "lmsweep", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    seen = lmsweep("status")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert "2 done" in seen.stdout
    told = lmsweep("seed=77", "trainer.max_steps=2")
    assert told.returncode == 1
    assert "Read-only file system" in told.stderr
    assert "make room" not in told.stderr
    assert "LMSWEEP_OUTPUTS" in told.stderr
