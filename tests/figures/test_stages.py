"""Two stages: pilot seeds choose, other seeds report, and what they report is what the whole grid would."""

import json
from dataclasses import replace

import pytest
import torch

from lmsweep.config.sweeps import parse_grid, read_sweep
from lmsweep.errors import ConfigError
from lmsweep.evaluation.jobs import judged
from lmsweep.figures.make import explain, make_figure, spec_of
from lmsweep.figures.record import read_csv
from lmsweep.figures.select import Stages
from lmsweep.store.store import Store
from tests.commands.test_reproduce import call
from tests.figures.test_make import sweep  # noqa: F401 - a fixture

PILOT = 2  # of the golden store's seeds 0, 1 and 2


@pytest.fixture
def staged(sweep):  # noqa: F811
    """The golden store, whose last seed chooses."""
    runs = {name: run for name, run in sweep.runs.items() if run.seed != PILOT}
    return replace(sweep, runs=runs, grid=parse_grid({"stages": {"pilot_seeds": [PILOT]}, "same_data": True}))


def best_of_pilots(whole, method, noise):
    """By a naive loop: the gamma with the best validation accuracy on the pilot seed."""
    found = {}
    for run in whole.runs.values():
        if (run.method_name(), run.data.label_noise, run.seed) == (method, noise, PILOT):
            results = Store(run.outputs).folder(run.id).read_results()
            if results:
                found[results["metrics"]["val_accuracy"]] = run.cell
    return found[max(found)]


def test_pilot_seeds_choose_and_other_seeds_report(staged, sweep):  # noqa: F811
    spec = spec_of(staged)
    pilots = Stages(staged, spec).pilot_runs
    assert pilots
    assert pilots.keys() <= sweep.runs.keys() - staged.runs.keys()
    gammas = {(run.method_name(), run.margin.gamma) for run in pilots.values()}
    assert {name for name, _ in gammas} == {"margin_l2_all"}  # the others have one setting each
    reporting = Stages(staged, spec).reporting_runs()
    for noise in (0.0, 0.4):
        mine = [
            r for r in reporting.values() if (r.method_name(), r.data.label_noise) == ("margin_l2_all", noise)
        ]
        assert {run.cell for run in mine} == {best_of_pilots(sweep, "margin_l2_all", noise)}
        assert sorted(run.seed for run in mine) == [0, 1]
    assert {r.id for r in staged.runs.values() if r.method_name() != "margin_l2_all"} <= reporting.keys()
    # How many there will be is known before a pilot run is there.
    for name in pilots:
        Store(staged.outputs).remove(name)
    assert len(Stages(staged, spec).reporting_runs(guess=True)) == len(reporting)
    assert not any(
        run.method_name() == "margin_l2_all" for run in Stages(staged, spec).reporting_runs().values()
    )


def test_the_record_says_which_seeds_chose_and_no_mean_has_them(staged, sweep):  # noqa: F811
    picture, _ = make_figure(staged, judged)
    record = json.loads(picture.with_suffix(".json").read_text())
    assert (record["seeds"], record["pilot_seeds"]) == ([0, 1], [PILOT])
    assert "Seed 2 compared the settings and is in no mean." in record["selection"]["sentence"]
    chosen = {run for cell in read_csv(picture.with_suffix(".csv"))["selected"] for run in cell.split()}
    assert chosen <= staged.runs.keys()
    told = list(explain(staged, "margin_l2_all", 0.4))
    assert sum("validation" in line and "of 1 seed" in line for line in told) == 2
    assert sum(line.startswith("  chosen") for line in told) == 1


def test_a_cell_whose_pilots_failed_says_why(staged):
    spec = spec_of(staged)
    stages = Stages(staged, spec)
    for name, run in {**stages.pilot_runs, **stages.reporting_runs()}.items():
        if run.method_name() == "margin_l2_all":
            folder = Store(staged.outputs).folder(name)
            Store(staged.outputs).remove(name)
            if run.seed == PILOT:
                Store(staged.outputs).lease(name, run.to_dict(), run.about()).fail("diverged", "", final=True)
            assert folder.read_results() is None
    record = make_figure(staged, judged)[1]
    reasons = {
        cell.reason for cell in record.missing if cell.method == "margin_l2_all" and cell.panel == "noise"
    }
    assert reasons == {"failed: diverged"}


def test_seeds_that_report_cannot_choose():
    figure = read_sweep("fig2_mnist_noise", "smoke", ["+grid.stages.pilot_seeds=[5,1]"])
    with pytest.raises(ConfigError, match=r"pilot_seeds=\[5, 1\] is not allowed: .* report \(0, 1, 2\)"):
        assert not Stages(figure, spec_of(figure)).pilot_runs
    assert Stages(read_sweep("fig2_mnist_noise", "smoke"), spec_of(figure)).pilot_runs == {}


def test_the_papers_noise_figure_needs_a_third(tmp_path):
    figure = read_sweep("fig2_mnist_noise", "paper", [f"outputs={tmp_path}"])
    stages = Stages(figure, spec_of(figure))
    pilots, reports = stages.pilot_runs, stages.reporting_runs(guess=True)
    assert len(pilots) == len(figure.runs) / 5  # one pilot seed in place of five
    methods, levels = len(spec_of(figure).methods), 5
    assert len(reports) == methods * levels * 5
    assert len(pilots) + len(reports) < 0.36 * len(figure.runs)


GRID = (
    *("method=xent", "data.label_noise=0,0.8", "model.dropout=0,0.5", "seed=0,1", "trainer.max_steps=40"),
    *("trainer.val_every=20", "hydra.launcher.jobs=1"),
)


@pytest.mark.slow
def test_two_stages_report_what_the_whole_grid_has_bit_for_bit(tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    whole = call(once, "reproduce", "fig2_mnist_noise", *GRID)
    staged = call(twice, "reproduce", "fig2_mnist_noise", *GRID, "+grid.stages.pilot_seeds=[7]")
    assert (whole.returncode, staged.returncode) == (0, 0), staged.stderr
    assert "4 runs on seed 7 choose the settings of 4 that report. 8 runs in place of 8" in staged.stdout
    (path,) = (twice / "figures").glob("*/fig2_mnist_noise.json")
    record = json.loads(path.read_text())
    assert (len(record["runs"]), record["seeds"], record["pilot_seeds"]) == (4, [0, 1], [7])
    for run in record["runs"]:
        mine, theirs = (json.loads((o / "runs" / run / "results.json").read_text()) for o in (twice, once))
        assert mine["metrics"] == theirs["metrics"]
        weights = [torch.load(o / "runs" / run / "checkpoint.ckpt", weights_only=True) for o in (twice, once)]
        assert all(map(torch.equal, *(kept["state_dict"].values() for kept in weights)))
    status = call(twice, "status").stdout
    assert "-pilot  4 done" in status
    told = call(twice, "table", "fig2_mnist_noise", "--format", "csv").stdout.splitlines()
    assert {line.split(",")[-1] for line in told[1:]} == {"2"}  # two seeds in every cell, never three
    again = call(twice, "reproduce", "fig2_mnist_noise", *GRID, "+grid.stages.pilot_seeds=[7]")
    assert "To train: 0 of 8 runs" in again.stdout


@pytest.mark.slow
def test_settings_are_not_chosen_while_pilot_runs_are_broken(tmp_path):
    words = (*GRID, "data=mnist", f"data.root={tmp_path / 'nothing'}", "+grid.stages.pilot_seeds=[7]")
    done = call(tmp_path / "out", "reproduce", "fig2_mnist_noise", *words)
    assert done.returncode == 1
    assert "4 of 4 pilot runs failed, so that no settings are chosen yet" in done.stderr
    assert len(list((tmp_path / "out" / "runs").glob("*/config.yaml"))) == 4
