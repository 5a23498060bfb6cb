"""A run of active learning is a curve: many x, drawn and compared with runs that have one x each."""

from dataclasses import replace

import pytest

from lmsweep.config.sweeps import GridConfig, Sweep, parse_grid
from lmsweep.evaluation.jobs import judged
from lmsweep.figures import collect
from lmsweep.figures.make import Gathered, make_figure
from lmsweep.figures.record import read_csv
from lmsweep.figures.spec import Panel
from lmsweep.store.store import Store
from tests.config.test_run import config

SEEDS = range(3)
CURVE = {0.02: 0.5, 0.04: 0.6, 0.06: 0.7}  # test accuracy of active learning, by the share of images
GRID = {0.05: 0.75, 0.1: 0.9, 1.0: 0.95}  # and of the margin
COMPARED = {"panel": "data", "where": "here", "kind": "greater"}
FIGURE = {
    "name": "curve",
    "title": "Few images",
    "paper": "Figure 0",
    "question": "Which curve is higher?",
    "kind": "curves",
    "selection": "best_validation",
    "panels": [
        {
            "name": "data",
            "title": "Few images",
            "x": {"key": "data.fraction", "label": "images", "unit": "percent", "scale": "log"},
            "y": {"metric": "test_accuracy", "label": "test accuracy", "unit": "percent"},
            "methods": ["margin_l2_all", "xent+bald"],
        }
    ],
    "claims": [
        {
            **COMPARED,
            "id": "beat_bald",
            "says": "The margin wins.",
            "pairs": [["margin_l2_all", "xent+bald"]],
            "right_x": "next",
        },
        {
            **COMPARED,
            "id": "lowest",
            "says": "The margin is itself.",
            "pairs": [["margin_l2_all", "margin_l2_all"]],
            "at": "lowest",
            "by": -0.01,
        },
    ],
}


def metrics(accuracy: float, seed: int) -> dict[str, float]:
    return {"val_accuracy": accuracy, "test_accuracy": accuracy + 0.01 * seed}


@pytest.fixture
def sweep(tmp_path) -> Sweep:
    place = f"outputs={tmp_path / 'outputs'}"
    runs = {}
    for seed in SEEDS:
        active = config("method=bald", f"seed={seed}", place)
        curve = [
            {"at": {"data.fraction": x}, "metrics": metrics(y, seed), "selections": {"last": metrics(0, 0)}}
            for x, y in CURVE.items()
        ]
        results = [(active, {"metrics": curve[-1]["metrics"], "curve": curve})]
        for x, y in GRID.items():
            one = config("method=margin", f"data.fraction={x}", f"seed={seed}", place)
            results.append((one, {"metrics": metrics(y, seed)}))
        for one, found in results:
            runs[one.id] = one
            folder = Store(one.outputs).lease(one.id, one.to_dict(), one.about())
            folder.finish({**found, "seconds": 1.0, "train_seconds": 1.0})
    return Sweep("curve", "smoke", runs, FIGURE, GridConfig(same_data=True))


@pytest.fixture(autouse=True)
def _a_file_of_its_own(monkeypatch, tmp_path):
    (tmp_path / "curve.yaml").write_text("")
    monkeypatch.setattr("lmsweep.figures.make.sweep_folder", lambda: tmp_path)


def shown(sweep: Sweep, method: str) -> dict[float, tuple[float, int]]:
    table = read_csv(make_figure(sweep, judged)[0].with_suffix(".csv"))
    mine = table[table["method"] == method]
    return {x: (round(mean, 6), n) for x, mean, n in zip(mine["x"], mine["mean"], mine["n"], strict=True)}


def test_one_run_per_seed_gives_every_point_of_its_curve(sweep):
    assert shown(sweep, "xent+bald") == {x: (pytest.approx(y + 0.01), 3) for x, y in CURVE.items()}
    assert shown(sweep, "margin_l2_all") == {x: (pytest.approx(y + 0.01), 3) for x, y in GRID.items()}
    record = make_figure(sweep, judged)[1]
    assert record.missing == []
    assert record.trained == 12


def test_the_last_weights_of_a_curve_are_those_of_its_points(sweep):
    last = replace(sweep, figure={**FIGURE, "checkpoint": "last"})
    assert set(shown(last, "xent+bald").values()) == {(0.0, 3)}


def test_a_curve_is_compared_where_it_has_at_least_as_many_images(sweep):
    claims = {claim.id: claim for claim in make_figure(sweep, judged)[1].claims}
    # The margin at 5% against the curve at 6%; 10% and more lie beyond the end of the curve.
    assert (claims["beat_bald"].verdict, claims["beat_bald"].n) == ("holds", 3)
    assert claims["beat_bald"].ours.startswith("+5.0% [5.0, 5.0] at 5%")
    assert claims["lowest"].ours.startswith("0.0% [0.0, 0.0] at 5%")  # not at 2%, where only the curve is


def test_what_is_missing_of_a_curve_is_told(sweep):
    active = [run for run in sweep.runs.values() if run.acquisition.active]
    Store(sweep.outputs).remove(active[0].id)
    assert {n for _, n in shown(sweep, "xent+bald").values()} == {2}
    assert make_figure(sweep, judged)[1].missing == []
    for run in active[1:]:
        Store(sweep.outputs).remove(run.id)
    record = make_figure(sweep, judged)[1]
    assert {(cell.method, cell.reason) for cell in record.missing} == {("xent+bald", "not trained")}
    verdicts = {claim.id: claim.verdict for claim in record.claims}
    assert verdicts == {"beat_bald": "not run", "lowest": "holds"}


def test_other_panels_have_the_result_of_the_whole_run(sweep):
    panel = Panel.model_validate({**FIGURE["panels"][0], "x": {"key": "data.label_noise", "label": "noise"}})
    axes = ["data.fraction", "data.label_noise"]
    store = Store(sweep.outputs)
    rows = collect.run_rows(sweep.runs, store, axes, panel.methods)
    points = collect.points_of([panel], rows, {}, store)
    active = points[points["method"] == "xent+bald"]
    assert sorted(active["y"]) == pytest.approx([0.7, 0.71, 0.72])
    assert len(collect.run_rows(sweep.runs, store, ["data.label_noise"])) == 12


def test_a_curve_stays_where_pilot_seeds_choose(sweep):
    staged = replace(sweep, grid=parse_grid({"stages": {"pilot_seeds": [9]}, "same_data": True}))
    assert sorted(set(Gathered(staged).chosen["x"])) == sorted({*CURVE, *GRID})
