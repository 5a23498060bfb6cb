"""Successive halving: who goes on after a rung, and that a run which paused is the run that never did."""

import json
import math

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmsweep.config.sweeps import read_sweep
from lmsweep.errors import ConfigError
from lmsweep.figures.make import spec_of
from lmsweep.figures.select import CELL, Rung, Stages, going_on, scores_until
from tests.commands.test_reproduce import call
from tests.figures.test_stages import GRID
from tests.training.test_adversarial import configured

SETTINGS = [*"abcdefg"]
ACCURACIES = st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.5, 0.9]))


CELLS = st.lists(ACCURACIES, min_size=2, max_size=7)


@given(CELLS, CELLS, st.integers(2, 4))
def test_the_best_of_each_cell_go_on(first, second, factor):
    cells = {("noise", "xent", 0.0): first, ("noise", "margin_l2_all", 0.4): second}
    rows = [(*cell, SETTINGS[i], 7, val) for cell, vals in cells.items() for i, val in enumerate(vals)]
    scores = pd.DataFrame(rows, columns=[*CELL, "setting", "seed", "val"]).astype({"val": float})
    kept = going_on(scores[[*CELL, "setting"]], scores, factor)
    for cell, values in cells.items():
        known = [(-val, SETTINGS[i]) for i, val in enumerate(values) if val is not None]
        naive = {setting for _, setting in sorted(known)[: math.ceil(len(known) / factor)]}
        mine = kept[(kept["method"] == cell[1]) & (kept["place"] == cell[2])]
        assert set(mine["setting"]) == naive


@pytest.mark.parametrize(
    ("steps", "val_every", "factor", "expected"),
    [(900, 10, 3, (100, 300)), (90, 20, 3, (20, 40)), (100, 30, 2, (30, 60)), (10, 10, 3, (10, 10))],
)
def test_rungs_are_validations(steps, val_every, factor, expected):
    run = configured(f"trainer.max_steps={steps}", f"trainer.val_every={val_every}")
    assert tuple(Rung(run, number, factor).step for number in (0, 1)) == expected


def test_scores_look_at_the_first_steps_only(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 10, "val_accuracy": 0.5, "val_clean_accuracy": 0.7},
        {"step": 15, "train_loss": 1.0},
        {"step": 20, "val_accuracy": 0.4, "val_clean_accuracy": 0.8},
        {"step": 30, "val_accuracy": 0.9, "val_clean_accuracy": 0.9},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert scores_until(path, 20) == {"best": 0.5, "best_clean": 0.8, "last": 0.4}
    assert scores_until(path, 5) == scores_until(tmp_path / "none", 20) == {}


def test_what_cannot_pause_is_refused():
    words = ["+grid.stages.pilot_seeds=[7]", "++grid.halving=3", "model.dropout=0,0.5"]
    figure = read_sweep("fig2_mnist_noise", "smoke", [*words, "trainer.devices=2"])
    with pytest.raises(ConfigError, match=r"halving is not allowed with trainer.devices=2 .*halving=null"):
        Stages(figure, spec_of(figure)).rungs(0)
    with pytest.raises(ConfigError, match=r"grid.halving=1 .*whole number >= 2"):
        read_sweep("fig2_mnist_noise", "smoke", [*words, "++grid.halving=1"])


def kept(outputs, run):
    folder = outputs / "runs" / run
    weights = torch.load(folder / "checkpoint.ckpt", weights_only=True)["state_dict"]
    results = json.loads((folder / "results.json").read_text())
    return weights, (folder / "metrics.jsonl").read_text(), results["metrics"], results["selections"]


def same(one, other):
    return one[1:] == other[1:] and all(torch.equal(one[0][key], other[0][key]) for key in other[0])


@pytest.mark.slow
def test_runs_that_paused_end_as_those_that_never_did(tmp_path):
    grid = (
        *("method=xent", "data.label_noise=0.4", "model.dropout=0,0.1,0.3,0.5,0.9", "seed=0"),
        *("trainer.max_steps=80", "trainer.val_every=10", "trainer.log_every=7", "hydra.launcher.jobs=2"),
    )
    pilots = "+grid.stages.pilot_seeds=[7]"
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    never = call(whole, "reproduce", "fig2_mnist_noise", *grid, pilots)
    told = call(halved, "reproduce", "fig2_mnist_noise", *grid, pilots, "++grid.halving=2")
    assert (never.returncode, told.returncode) == (0, 0), told.stderr
    assert "Halving: 5, then 3 pilot runs pause and are compared; 2 go on to their end." in told.stdout
    states = {path.parent.name: json.loads(path.read_text()) for path in halved.glob("runs/*/status.json")}
    pilots_of = {name: status for name, status in states.items() if status["about"]["seed"] == 7}
    ended = [name for name, status in pilots_of.items() if status["state"] == "done"]
    waiting = [name for name, status in pilots_of.items() if status["state"] == "pending"]
    assert (len(ended), len(waiting)) == (2, 3)
    at = sorted(
        torch.load(halved / "runs" / name / "checkpoint.ckpt", weights_only=True)["global_step"]
        for name in waiting
    )
    assert at == [20, 20, 40]
    assert all(same(kept(halved, name), kept(whole, name)) for name in ended)
    (record,) = [json.loads(path.read_text()) for path in halved.glob("figures/*/fig2_mnist_noise.json")]
    assert "By successive halving one of 2 settings went on" in record["selection"]["sentence"]
    # Asked for all pilot runs, those that wait go on to the same end.
    again = call(halved, "reproduce", "fig2_mnist_noise", *grid, pilots)
    assert again.returncode == 0, again.stderr
    assert all(same(kept(halved, name), kept(whole, name)) for name in waiting)


@pytest.mark.slow
def test_a_cell_decided_on_a_rung_trains_no_pilot_run_to_its_end(tmp_path):
    words = (*GRID, "trainer.val_every=10", "+grid.stages.pilot_seeds=[7]", "++grid.halving=3")
    told = call(tmp_path, "reproduce", "fig2_mnist_noise", *words)
    assert told.returncode == 0, told.stderr
    assert "0 go on to their end" in told.stdout
    states = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/status.json")]
    assert sorted((s["about"]["seed"], s["state"]) for s in states) == [
        *[(0, "done")] * 2,
        *[(1, "done")] * 2,
        *[(7, "pending")] * 4,
    ]
    assert "To train: 0 of 4 runs" in call(tmp_path, "reproduce", "fig2_mnist_noise", *words).stdout
