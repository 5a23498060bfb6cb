"""A W&B sweep with our runs: the command lines that W&B's own agent makes of it are those of our sweep."""

import itertools
import sys

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

from lmsweep.commands import wandb
from lmsweep.commands.wandb import split_runs, wandb_sweep_command
from lmsweep.config.sweeps import read_sweep
from lmsweep.store.sweeps import runs_of


def lines(config):
    """The words that an agent calls us with, for every point of the grid."""
    axes = {key: values["values"] for key, values in config["parameters"].items()}
    for point in itertools.product(*axes.values()):
        told = {"args": {key: {"value": value} for key, value in zip(axes, point, strict=True)}}
        arguments = create_sweep_command_args(told)["args_no_hyphens"]
        assert config["command"][-1] == "${args_no_hyphens}"
        yield [*config["command"][5:-1], *arguments]


@pytest.mark.parametrize("name", ["fig1_toy", "fig2_mnist_noise"])
def test_an_agent_is_given_the_jobs_of_the_sweep(name, capsys, tmp_path):
    wandb_sweep_command([name, "--outputs", str(tmp_path), "--entity", "team"])
    config = yaml.safe_load(capsys.readouterr().out)
    sweep = read_sweep(name, "smoke", [f"outputs={tmp_path}"])
    tracking = {"tracking=wandb", "tracking.mode=online", "tracking.project=lmsweep", "tracking.entity=team"}
    ours = {frozenset(job) for job in sweep.lines}
    theirs = [frozenset(wandb.spelled_out(words)) for words in lines(config)]
    assert all(tracking <= words for words in theirs)
    assert {words - tracking for words in theirs} == ours
    assert len(theirs) == len(ours)
    assert config["command"][:5] == ["${env}", "python", "-m", "lmsweep", "wandb-agent"]
    assert runs_of(tmp_path, name) == set(sweep.runs)  # so that runs know their sweep


def test_axes_that_make_no_product_are_written_out():
    jobs = [{"method": "xent", "seed": s, "lr": r} for s, r in (("0", "1"), ("0", "2"), ("1", "1"))]
    fixed, axes = split_runs(jobs)
    assert (fixed, list(axes)) == ({"method": "xent"}, ["choice"])
    assert axes["choice"] == ["seed=0 lr=1", "seed=0 lr=2", "seed=1 lr=1"]


def test_an_agents_words_are_those_of_our_command(monkeypatch):
    called = []
    monkeypatch.setattr(wandb, "run_command", lambda: called.extend(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["agent", "choice=method=margin margin.gamma=0.5", "seed=1"])
    wandb.wandb_agent_command()
    assert called == ["method=margin", "margin.gamma=0.5", "seed=1"]
