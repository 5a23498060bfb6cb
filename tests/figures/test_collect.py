"""From runs in the store to points."""

import json

import numpy as np
import pandas as pd
import pytest

from lmsweep.config.identity import run_id
from lmsweep.figures import collect
from lmsweep.figures.spec import Panel
from lmsweep.store.store import Store
from tests.config.test_run import config


def panel(**keys) -> Panel:
    plain = {
        "name": "p",
        "title": "P",
        "x": {"key": "data.label_noise", "label": "noise"},
        "y": {"metric": "test_accuracy", "label": "accuracy"},
        "methods": ["xent", "margin_l2_all"],
    }
    return Panel.model_validate({**plain, **keys})


@pytest.fixture
def runs(tmp_path):
    store = Store(tmp_path)
    found = {}
    for method, gamma, noise, seed in (
        (["method=xent"], 1, 0.0, 0),
        (["method=xent"], 1, 0.4, 0),
        (["method=margin", "margin.norm=2"], 1, 0.0, 0),
        (["method=margin", "margin.norm=2"], 2, 0.0, 1),
        (["method=margin", "margin.norm=1"], 2, 0.0, 1),
    ):
        one = config(*method, f"margin.gamma={gamma}", f"data.label_noise={noise}", f"seed={seed}")
        name = run_id(one.identity_dict())
        found[name] = one
        metrics = {"steps": 10, "val_accuracy": 0.1 * gamma, "test_accuracy": noise + seed}
        folder = store.lease(name, one.to_dict())
        lines = [{"step": s, "distance/test/input": s + seed, "distance/val/input": -s} for s in (0, 10)]
        folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in (*lines, {"step": 5, "a": 1})))
        folder.finish({"metrics": metrics, "train_seconds": 20.0 * gamma})
    unfinished = config("seed=9")
    found[run_id(unfinished.identity_dict())] = unfinished
    return store, found


def test_a_run_is_one_of_the_variants_whose_values_it_has_all():
    run = config("method=xent", "optimizer.lr=0.003", "margin.clip=null")
    asked = [
        *("xent", "xent@optimizer.lr=0.003", "xent@optimizer.lr=0.003@margin.clip=null", "margin_l2_all"),
        *("xent@optimizer.lr=0.01", "xent@optimizer.lr=0.003@seed=7", "xent@seed=7@optimizer.lr=0.003"),
    ]
    assert collect.names(run, asked) == asked[:3]


def test_a_setting_is_what_differs_but_for_axes_methods_and_seeds(runs):
    _, found = runs
    settings = collect.settings(found, ["data.label_noise"])
    kinds = {(c.method_name(), c.margin.gamma): json.loads(settings[n]) for n, c in found.items()}
    assert kinds[("xent", 1.0)] == {}
    assert kinds[("margin_l2_all", 2.0)] == {"margin.gamma": 2.0}
    every = collect.settings(found, [])
    assert {json.loads(s)["data.label_noise"] for s in every.values()} == {0.0, 0.4}


def test_points_over_a_key_of_the_runs(runs):
    store, found = runs
    rows = collect.run_rows(found, store, ["data.label_noise"])
    assert len(rows) == 5
    points = collect.points_of([panel()], rows, {}, store)
    table = {(p.method, p.x, p.seed): (p.y, p.val) for p in points.itertuples()}
    assert table == {
        ("xent", 0.0, 0): (0.0, 0.1),
        ("xent", 0.4, 0): (0.4, 0.1),
        ("margin_l2_all", 0.0, 0): (0.0, 0.1),
        ("margin_l2_all", 0.0, 1): (1.0, 0.2),
    }


def test_a_panel_shows_the_weights_it_asks_for():
    metrics = {"val_accuracy": 0.5, "val_clean_accuracy": 0.8, "test_accuracy": 0.81, "train_accuracy": 0.6}
    last = {"val_accuracy": 0.4, "val_clean_accuracy": 0.7, "test_accuracy": 0.7}
    clean = {"val_accuracy": 0.45, "val_clean_accuracy": 0.85, "test_accuracy": 0.84}
    without_noise = {"val_accuracy": 0.9, "test_accuracy": 0.91, "train_accuracy": 1.0}
    results = [
        {"metrics": metrics, "selections": {"last": last, "best_clean": clean}},
        {"metrics": without_noise, "selections": {"last": without_noise}},
        {"metrics": without_noise},  # of a store that did not keep its last weights
    ]
    shown = {
        name: pd.DataFrame([collect.metrics_of(one, name) for one in results])
        for name in ("best", "best_clean", "last")
    }
    found = {name: rows[["test_accuracy", "val_accuracy"]].to_numpy() for name, rows in shown.items()}
    assert found["best"].tolist() == [[0.81, 0.5], [0.91, 0.9], [0.91, 0.9]]
    # Hyperparameters are chosen by clean labels as well.
    assert found["best_clean"].tolist() == [[0.84, 0.85], [0.91, 0.9], [0.91, 0.9]]
    assert found["last"][:2].tolist() == [[0.7, 0.4], [0.91, 0.9]]
    assert np.isnan(found["last"][2]).all()
    assert np.isnan(shown["last"]["train_accuracy"][0])  # measured of the best only


def test_a_run_without_the_axis_key_is_a_level_line(runs):
    store, found = runs
    rows = collect.run_rows(found, store, ["margin.gamma"])
    rows = rows[rows["run"].isin(rows.drop_duplicates(["method", "margin.gamma"])["run"])]
    one = panel(x={"key": "margin.gamma", "label": "gamma"})
    points = collect.points_of([one], rows, {}, store)
    margins = sorted(points[points["method"] == "margin_l2_all"]["x"])
    assert margins == [1.0, 2.0]
    assert sorted(points[points["method"] == "xent"]["x"]) == margins


def test_one_strength_of_an_attack_over_a_key(runs):
    store, found = runs
    rows = collect.run_rows(found, store, ["data.label_noise"])
    attacked = rows["run"].iloc[0]
    one = panel(y={"metric": "accuracy", "attack": "a", "at": 0.1, "label": "accuracy"})
    curve = {"strengths": [0.0, 0.1], "accuracy": [0.9, 0.5]}
    points = collect.points_of([one], rows, {"a": {attacked: curve}}, store)
    assert points[points["run"] == attacked]["y"].to_list() == [0.5]
    assert points["y"].isna().sum() == len(points) - 1


def test_points_over_an_attack_keep_runs_that_are_not_evaluated(runs):
    store, found = runs
    rows = collect.run_rows(found, store, [])
    attacked = rows["run"].iloc[0]
    one = panel(x={"attack": "a", "label": "epsilon"}, y={"metric": "accuracy", "label": "accuracy"})
    curve = {"strengths": [0.0, 0.1], "accuracy": [0.9, 0.5]}
    points = collect.points_of([one], rows, {"a": {attacked: curve}}, store)
    mine = points[points["run"] == attacked]
    assert list(zip(mine["x"], mine["y"], strict=True)) == [(0.0, 0.9), (0.1, 0.5)]
    assert len(points[points["y"].isna()]) == 3


def test_points_over_training_steps_come_for_every_split(runs):
    store, found = runs
    rows = collect.run_rows(found, store, [])
    one = panel(x={"key": "step", "label": "step"}, y={"metric": "test_distance_input", "label": "distance"})
    points = collect.points_of([one], rows, {}, store)
    second = points[(points["seed"] == 1) & (points["split"] == "test")]
    assert list(zip(second["x"], second["y"], strict=True)) == [(0.0, 1.0), (10.0, 11.0)]
    assert set(points["split"]) == {"test", "validation"}


def test_nothing_finished_is_an_empty_table(tmp_path):
    one, store = config(), Store(tmp_path)
    rows = collect.run_rows({run_id(one.identity_dict()): one}, store, ["data.label_noise"])
    assert rows.empty
    assert isinstance(collect.points_of([panel()], rows, {}, store), pd.DataFrame)
