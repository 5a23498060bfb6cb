"""Whatever happens to a file of a store: no traceback, and no wrong number."""

import json
import math
import os
import shutil
import tempfile
from argparse import Namespace
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmsweep.commands import figures
from lmsweep.commands import store as command
from lmsweep.commands.jobs import run_training, training_job
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.errors import UserError
from lmsweep.evaluation.jobs import judged
from lmsweep.figures import make
from lmsweep.figures.pages.report import write_report
from lmsweep.figures.record import read_csv, read_record
from lmsweep.files import DamagedError, read_json, write_json
from lmsweep.store.housekeeping import collect_garbage
from lmsweep.store.store import Store, overview
from lmsweep.store.sweeps import record_sweep, states_by_sweep
from lmsweep.training.checkpoint import load_checkpoint
from lmsweep.training.run import prepare_run, run

FIGURE = "fig2_mnist_noise"
CASES = 100
KEYS = (
    *("trainer.max_steps=4", "trainer.val_every=2", "trainer.log_every=1", "trainer.batch_size=8"),
    *("model.width=1", "data.fraction=0.05", "data.label_noise=0,0.4", "seed=0", "method=xent"),
)


def interrupted(config, outputs):
    """A run that was stopped after its first checkpoint."""
    job = training_job(config)
    folder = Store(outputs).lease(job.id, job.config, job.about)
    seen = []

    def lease():
        seen.append(1)
        if folder.checkpoint.exists() and len(seen) > 2:
            raise KeyboardInterrupt
        return folder.holding()

    with pytest.raises(KeyboardInterrupt):
        run(prepare_run(config), job.id, folder.path, lease)
    folder.release()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A store with two finished runs, an interrupted one and a figure; the sweep, and the right numbers."""
    outputs = tmp_path_factory.mktemp("small") / "outputs"
    sweep = read_sweep(FIGURE, "smoke", [f"outputs={outputs}", *KEYS])
    configs = list(sweep.runs.values())
    assert len(configs) == 2
    for config in configs:
        run_training(config)
    third = configs[0].model_copy(update={"seed": 1})
    interrupted(third, outputs)
    record_sweep(outputs, sweep.runs, sweep.name, sweep.label)
    make.make_figure(sweep, judged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmsweep.store.store.SETTLED_NANOSECONDS", 0)
        overview(outputs)
    pristine = outputs.with_name("pristine")
    shutil.copytree(outputs, pristine)
    run_training(third)
    rows = {row["run"]: row for row in overview(outputs)}
    lines = {folder.id: folder.metrics.read_bytes() for folder in Store(outputs).folders()}
    write_report(outputs)
    return pristine, outputs, sweep, third, rows, lines


def files_of(pristine):
    return sorted(str(path.relative_to(pristine)) for path in pristine.rglob("*") if path.is_file())


def damage(data: bytes, kind: str, where: float, bits: int) -> bytes:
    place = int(where * len(data))
    if kind == "flip" and data:
        return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]
    return b"" if kind == "empty" else data[:place]


def answer(function, *arguments):
    """What a command answers; None for a sentence."""
    try:
        return function(*arguments)
    except UserError:
        return None


def in_store(sweep: Sweep, outputs: Path) -> Sweep:
    runs = {k: v.model_copy(update={"outputs": str(outputs)}) for k, v in sweep.runs.items()}
    return replace(sweep, runs=runs)


def check_case(small, outputs: Path, victim: str) -> None:
    pristine, _, sweep, third, right, lines = small
    mine, third = in_store(sweep, outputs), third.model_copy(update={"outputs": str(outputs)})
    checkpoints = sorted(outputs.glob("runs/*/checkpoint.ckpt"))

    def check_rows(final: bool) -> None:
        for row in overview(outputs):
            wanted = right[row["run"]]
            if row["state"] == "done":
                numbers = {key for key in wanted if key != "seconds"}
                assert {key: row[key] for key in numbers} == {key: wanted[key] for key in numbers}
            else:
                assert not final or (row["run"] == third.id and third.id not in victim)
                assert row["state"] in ("damaged", "pending")
                assert row["state"] == "pending" or victim in row["reason"]

    # status
    check_rows(final=False)
    told: list[str] = []
    counted = states_by_sweep(outputs, overview(outputs), told)
    assert [sum(counts.values()) for _, counts in counted] == [2] or victim in told[0]
    command._status(Namespace(outputs=outputs, sweep=None, state=None, all=True, json=True))
    # gc: the figure's checkpoints stay
    answer(collect_garbage, outputs)
    assert sorted(outputs.glob("runs/*/checkpoint.ckpt")) == checkpoints
    # report
    with redirect_stderr(StringIO()):
        page = answer(write_report, outputs)
    record = outputs / "figures" / mine.label / f"{FIGURE}.json"
    wanted_record = read_record(pristine / "figures" / mine.label / record.name)
    if page is not None:
        assert read_record(record) == wanted_record
        text = page.read_text()
        table = read_csv(pristine / "figures" / mine.label / f"{FIGURE}.csv")
        for mean in table["mean"]:
            assert victim.endswith(".csv") or f"{mean:.4f}"[:4] in text
    # figure, before and after the runs are trained again
    wanted = read_csv(pristine / "figures" / mine.label / f"{FIGURE}.csv").set_index(["method", "x"])
    for trained in (False, True)[: 1 + (victim.startswith("runs"))]:
        if trained:
            with redirect_stderr(StringIO()):
                for config in (*mine.runs.values(), *([third] if third.id in victim else [])):
                    run_training(config)
            check_rows(final=True)
        made = answer(make.make_figure, mine, judged)
        assert made is not None
        drawn = read_csv(record.with_suffix(".csv")).set_index(["method", "x"])
        assert trained <= (len(drawn) == len(wanted))
        for key, row in drawn.iterrows():
            assert math.isclose(row["mean"], wanted.loc[key, "mean"], abs_tol=0)
            assert row["selected"] == wanted.loc[key, "selected"]
    # What figures over training steps read
    for folder in Store(outputs).folders():
        if folder.id == third.id and third.id not in victim:
            continue
        kept = answer(folder.read_file, folder.metrics)
        assert kept in (None, lines[folder.id])
        assert kept is not None or victim.endswith("metrics.jsonl")
    # What attacks read
    for path in outputs.glob("runs/*/checkpoint.ckpt"):
        if third.id in str(path) and third.id not in victim:
            continue
        try:
            state = load_checkpoint(path)
        except DamagedError:
            assert victim.endswith("checkpoint.ckpt")
            continue
        right_state = load_checkpoint(small[1] / path.relative_to(outputs))
        assert all(torch.equal(state["state_dict"][k], v) for k, v in right_state["state_dict"].items())


@pytest.mark.slow
def test_any_byte_of_any_file_may_change_and_no_number_is_wrong(small, monkeypatch):
    pristine = small[0]
    files = files_of(pristine)
    assert {Path(name).name for name in files} >= {
        *("config.yaml", "status.json", "results.json", "metrics.jsonl", "checkpoint.ckpt"),
        *(".index.json", f"{FIGURE}.json", f"{FIGURE}.csv"),
    }
    monkeypatch.setattr(make, "draw", lambda *_: None)  # pictures take a second, and have no numbers to read
    monkeypatch.setattr(make, "save", lambda _, path: [path.with_suffix(".png"), path])
    cases = []

    @settings(
        max_examples=CASES,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.sampled_from(files),
        st.sampled_from(["flip", "flip", "flip", "truncate", "empty"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 255),
    )
    def one(victim, kind, where, bits):
        with tempfile.TemporaryDirectory(dir=pristine.parent) as folder:
            outputs = Path(folder, "outputs")
            shutil.copytree(pristine, outputs, copy_function=os.link)  # our code replaces files, never edits
            path = outputs / victim
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(damage(data, kind, where, bits))
            check_case(small, outputs, victim)
        cases.append(victim)

    one()
    assert len(cases) >= CASES


def test_an_edited_accuracy_is_noticed_by_status_figure_and_verify(small, tmp_path, capsys):
    pristine, _, sweep, *_ = small
    outputs = tmp_path / "outputs"
    shutil.copytree(pristine, outputs)
    name = next(iter(sweep.runs))
    results = Store(outputs).folder(name).results
    text = results.read_text()
    accuracy = json.loads(text)["metrics"]["test_accuracy"]
    results.write_text(text.replace(f'"test_accuracy": {accuracy}', '"test_accuracy": 0.999'))
    assert Store(outputs).folder(name).read_status()["state"] == "damaged"
    row = next(row for row in overview(outputs) if row["run"] == name)
    assert row["state"] == "damaged"
    assert "results.json is damaged (its checksum does not fit" in row["reason"]
    where = ["--outputs", str(outputs), "--expected", str(pristine / "figures")]
    with pytest.raises(SystemExit):
        figures.verify_command([FIGURE, "--scale", sweep.label, *where])
    assert "results.json is damaged" in capsys.readouterr().err
    _, made = make.make_figure(in_store(sweep, outputs), judged)
    assert ["damaged: " in cell.reason for cell in made.missing] == [True]


def test_a_store_of_the_previous_version_opens(small, tmp_path):
    """Without tokens, places, checksums and index: finished runs are read, interrupted ones go on."""
    pristine, _, sweep, third, right, lines = small
    outputs = tmp_path / "outputs"
    shutil.copytree(pristine, outputs)
    for path in outputs.rglob("*.json"):
        content = json.loads(path.read_text())
        for key in ("checksum", "token", "place", "files", "table"):
            content.pop(key, None)
        path.unlink()
        if not path.name.startswith("."):
            path.write_text(json.dumps(content))
    rows = overview(outputs)
    assert sorted(row["state"] for row in rows) == ["done", "done", "pending"]
    for config in (*sweep.runs.values(), third):
        run_training(config.model_copy(update={"outputs": str(outputs)}))
    again = {row["run"]: row for row in overview(outputs)}
    assert all(again[name]["test_accuracy"] == right[name]["test_accuracy"] for name in right)
    assert {folder.id: folder.metrics.read_bytes() for folder in Store(outputs).folders()} == lines
    assert Store(outputs).folder(rows[0]["run"]).read_status()["attempt"] == 1


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"state": "done"}', '{"state": 3}', "\0" * 10])
def test_damage_is_a_state_and_the_work_is_done_again(tmp_path, content):
    store = Store(tmp_path)
    store.lease("abc", {}, {}).finish({"n": 1})
    store.lease("other", {}, {}).finish({"n": 2})
    store.folder("abc").status.write_text(content)
    rows = {row["run"]: row["state"] for row in overview(tmp_path)}
    assert rows == {"abc": "damaged", "other": "done"} or rows["other"] == "damaged"
    status, results = store.folder("abc").look()
    assert (status["state"], results) == ("damaged", None)
    assert "status.json is damaged" in status["reason"]
    store.lease("abc", {}, {}).finish({"n": 1})
    assert store.folder("abc").read_results() == {"n": 1}


def test_a_number_in_a_file_cannot_be_changed_by_hand(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"accuracy": 0.5, "lines": ["a"]})
    assert json.loads(path.read_text())["accuracy"] == 0.5
    path.write_text(path.read_text().replace("0.5", "0.9"))
    with pytest.raises(DamagedError, match=r"file\.json is damaged \(its checksum does not fit"):
        read_json(path)
