"""What figures cost: counted from their configurations, and kept in docs/cluster.md."""

from pathlib import Path

import pytest

from lmsweep.commands.reproduce import BEGIN, END, as_table, costs
from lmsweep.config.sweeps import read_sweep, sweep_names
from tests.commands.test_reproduce import call

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def counted(table):
    """Every row of a table without its hours."""
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [[word.strip() for word in line.strip("|").split("|")][:4] for line in lines]


# All figures together have ten thousand runs to compose; a few small ones say whether the page is up to date.
SMALL = ("fig1_toy", "fig3_mnist_advtrain", "fig5_cifar_ifgsm", "fig6_imagenet_attacks", "figX_exact")


@pytest.mark.slow
def test_the_page_has_the_runs_and_steps_of_the_papers_scale():
    kept = counted(PAGE.read_text().partition(BEGIN)[2].partition(END)[0])
    now = counted(as_table(costs([read_sweep(name, "paper") for name in SMALL], hours=False)))
    assert [row[0] for row in kept] == [*sweep_names(), "all together"]
    rows = [row for row in kept if row[0] in SMALL]
    assert rows == now[:-1], "run `lmsweep costs --scale paper --write docs/cluster.md`"


def test_runs_are_counted_once_and_steps_are_those_of_the_runs():
    toy, noise = (read_sweep(name, "smoke") for name in ("fig1_toy", "fig2_mnist_noise"))
    rows = costs([toy, noise, noise], hours=False)
    assert [row.figure for row in rows] == ["fig1_toy", "fig2_mnist_noise", "all together"]
    assert [row.runs for row in rows] == [len(toy.runs), len(noise.runs), len(toy.runs) + len(noise.runs)]
    assert rows[1].steps == len(noise.runs) * 200
    assert rows[2].steps == rows[0].steps + rows[1].steps


@pytest.mark.slow
def test_a_rehearsal_prints_figures_methods_steps_and_hours(tmp_path):
    words = ("method=xent", "seed=0,1", "trainer.max_steps=20", "dry_run=true")
    done = call(tmp_path, "reproduce", "fig2_mnist_noise", "fig10_mnist_gaussian", *words)
    assert done.returncode == 0, done.stderr
    head, noise, gaussian, total = (line.split() for line in done.stdout.splitlines()[:4])
    assert head[:3] == ["figure", "method", "cells"]
    assert (noise[:2], gaussian[:2]) == (["fig2_mnist_noise", "xent"], ["fig10_mnist_gaussian", "xent"])
    assert (noise[7], gaussian[7], total[6]) == ("200", "40", "200")  # the clean runs are shared
    assert "to" in noise[-2]
    assert "2 figures ask for 12 runs; sharing saves 2 of them." in done.stdout
    page = tmp_path / "page.md"
    page.write_text("nothing")
    assert "has no place for the table" in call(tmp_path, "costs", "fig1_toy", "--write", str(page)).stderr
