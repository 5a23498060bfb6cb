"""Grids that have no figure file: their cells, their plot, and their place in the report."""

import json

import pandas as pd
import pytest

from lmsweep.figures.pages.grids import METRIC, axes_of, cells, draw_grid
from lmsweep.figures.pages.report import write_report
from lmsweep.store.sweeps import own_grids, record_sweep
from tests.figures.drawn import draw, record
from tests.figures.test_report import Page


def rows(**axes):
    """Two seeds of every combination, as `results_table` gives them; cross-entropy has no gamma."""
    grid = pd.MultiIndex.from_product(axes.values(), names=axes).to_frame(index=False)
    grid = pd.concat([grid.assign(**{"config.seed": seed}) for seed in (0, 1)], ignore_index=True)
    if "config.margin.gamma" in grid:
        grid.loc[grid["method"] == "xent", "config.margin.gamma"] = float("nan")
    grid[METRIC] = [0.5 + 0.001 * number for number in range(len(grid))]
    return grid.drop_duplicates([name for name in grid if name != METRIC]).assign(state="done")


GRIDS = {
    "methods alone": rows(method=["xent", "hinge"]),
    "one axis": rows(method=["margin_l2_all"], **{"config.margin.gamma": [0.5, 1.0, 2.0]}),
    "two axes": rows(
        method=["xent", "margin_l2_all"],
        **{"config.margin.gamma": [0.5, 1.0, 2.0], "config.data.label_noise": [0.0, 0.4]},
    ),
    "words and many lines": rows(
        method=["xent"],
        **{"config.a": [f"word{i}" for i in range(9)], "config.b": list(range(8)), "config.c": [True, False]},
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_every_grid_has_a_plot_and_a_table_in_the_report(name, tmp_path):
    rows = GRIDS[name]
    page = Page(write_report(tmp_path, {name: rows}))
    (picture,) = page.all("img")
    assert picture["src"].startswith("data:image/png;base64,")
    assert f"{name} A grid without a figure file, {len(rows)} of {len(rows)} runs done" in page.text
    assert page.text.count("0.5") >= 1


def test_a_cell_is_the_mean_over_seeds_and_unused_keys_are_empty():
    table = cells(GRIDS["two axes"], METRIC)
    assert axes_of(table) == ["margin.gamma", "data.label_noise"]
    assert set(table.loc[table["method"] == "xent", "margin.gamma"]) == {""}
    for cell in table.to_dict("records"):
        same = GRIDS["two axes"]
        same = same[
            (same["method"] == cell["method"])
            & (same["config.data.label_noise"] == float(cell["data.label_noise"]))
        ]
        if cell["margin.gamma"]:
            same = same[same["config.margin.gamma"] == float(cell["margin.gamma"])]
        assert cell["mean"] == pytest.approx(same[METRIC].mean())
        assert cell["n"] == len(same) == 2
    assert draw_grid(table, "same") == draw_grid(table, "same")


def test_a_grid_whose_runs_are_not_done_says_so_and_figures_stay_as_they_are(tmp_path):
    draw(tmp_path, record())
    alone = write_report(tmp_path).read_text()
    pending = GRIDS["one axis"].assign(state="pending")
    page = Page(write_report(tmp_path, {"later": pending}))
    assert "0 of 6 runs done" in page.text
    assert len(page.all("img")) == 1
    assert write_report(tmp_path).read_text() == alone


def test_which_grids_a_store_has(tmp_path):
    record_sweep(tmp_path, ["a", "b"], "fig2_mnist_noise", "smoke")
    record_sweep(tmp_path, ["a", "c"], "my_idea", None)
    record_sweep(tmp_path, ["d"], "my_idea", None)
    record_sweep(tmp_path, ["a", "b", "c"], None, None)  # told by the two above
    nameless = record_sweep(tmp_path, ["a", "e"], None, None)
    found = own_grids(tmp_path, ["fig2_mnist_noise"])
    assert found == {"my_idea": ["a", "c", "d"], nameless.stem: ["a", "e"]}
    assert json.loads(nameless.read_text())["sweep"] == "unnamed"
