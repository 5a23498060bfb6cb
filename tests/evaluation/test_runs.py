"""Runs are found, checked and paired: a folder's name, its files, its data, and whose examples it meets."""

import json
import shutil

import pytest
import torch

from lmsweep.config.identity import run_id
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.measure import load_run
from lmsweep.evaluation.runs import cross_entropy_source, find_run
from lmsweep.files import write_json
from tests.evaluation.conftest import FEW, evaluate, named, request


def test_runs_are_found_by_id_beginning_and_folder(runs, tmp_path):
    outputs, ids = runs
    name = ids["xent0"]
    for text in (name, name[:8], str(outputs / "runs" / name)):
        assert find_run(outputs, text).id == name
    with pytest.raises(UserError, match="There is no run nope"):
        find_run(outputs, "nope")
    with pytest.raises(UserError, match="'' is no id"):
        find_run(outputs, "")
    status = json.loads((outputs / "runs" / name / "status.json").read_text())
    (tmp_path / "runs" / name).mkdir(parents=True)
    write_json(tmp_path / "runs" / name / "status.json", {**status, "state": "pending"})
    with pytest.raises(UserError, match="not finished"):
        find_run(tmp_path, name)


def test_a_run_is_what_its_configuration_says_not_what_its_folder_is_called(runs, tmp_path):
    outputs, ids = runs
    kept = shutil.copytree(outputs / "runs" / ids["xent0"], tmp_path / ids["xent0"])
    run = find_run(outputs, str(kept))
    assert run.id == ids["xent0"] == run_id(run.config.identity_dict())
    # Two copies that are both called "best" would otherwise share one evaluation.
    for name in ("xent0", "xent1"):
        renamed = shutil.copytree(outputs / "runs" / ids[name], tmp_path / name / "best")
        with pytest.raises(UserError, match=f"describes run {ids[name]}, not best") as refused:
            find_run(outputs, str(renamed))
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["seed: [1", "", "- 1\n", b"\xff\xfe"])
def test_a_damaged_configuration_is_named_in_one_sentence(runs, tmp_path, content):
    outputs, ids = runs
    copy = shutil.copytree(outputs / "runs" / ids["xent0"], tmp_path / ids["xent0"])
    (copy / "config.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as refused:
        find_run(outputs, str(copy))
    assert f"{copy / 'config.yaml'} is damaged" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_data_are_read_where_they_are_now(runs, tmp_path, monkeypatch):
    outputs, ids = runs
    monkeypatch.chdir(outputs)
    target = named(ids, "other_data")
    ((one, _, results),) = evaluate(request(outputs, target, "attack=fgsm", "root=moved", "trust=tests"))
    assert results["curves"][ids["other_data"]]["samples"] == 80
    assert "root" not in one.frozen
    run = find_run(outputs, ids["other_data"], "tests")
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        load_run(run, str(tmp_path), torch.device("cpu"))
    assert run.config.data.root == str(outputs / "data")
    monkeypatch.setenv("LMSWEEP_DATA", "/some/where")
    assert request(outputs, target).root == "/some/where"


def test_the_default_source_is_the_cross_entropy_run_of_the_cell_with_the_next_seed(runs):
    outputs, ids = runs
    wanted = {"margin0": "xent1", "xent0": "xent1", "xent1": "xent2", "xent2": "xent0"}
    for target, source in wanted.items():
        assert cross_entropy_source(outputs, find_run(outputs, ids[target])).id == ids[source]
    with pytest.raises(UserError, match="method=xent and seed=3"):
        cross_entropy_source(outputs, find_run(outputs, ids["elsewhere"]))


def test_runs_with_different_data_do_not_attack_each_other(runs):
    outputs, ids = runs
    with pytest.raises(UserError, match=f"Run {ids['other_data']} cannot attack run {ids['xent0']}"):
        evaluate(request(outputs, named(ids, "xent0"), f"source='{ids['other_data']}'", "trust=tests", *FEW))


@pytest.mark.parametrize(("source", "target"), [("xent1", "xent0"), ("elsewhere", "xent2")])
def test_only_the_test_split_is_shared_by_different_draws(runs, source, target):
    outputs, ids = runs
    with pytest.raises(ConfigError, match="split=train is not allowed with examples of run"):
        evaluate(request(outputs, named(ids, target), f"source='{ids[source]}'", "split=train", *FEW))
