"""What counts as a difference between two tables."""

import numpy as np
import pandas as pd
import pytest

from lmsweep.commands.figures import EXPECTED, cheapest_cell
from lmsweep.config.sweeps import read_sweep
from lmsweep.figures.record import differences
from tests.figures.test_table import golden_table

CELL = "panel noise, method xent, x 0"


def test_equal_tables_do_not_differ_in_whatever_order():
    table = golden_table()
    assert differences(table, table) == []
    assert differences(table.iloc[::-1], table) == []


@pytest.mark.parametrize(
    ("change", "differs"), [(0.019, False), (-0.019, False), (0.021, True), (-0.021, True)]
)
def test_means_differ_by_more_than_the_tolerance(change, differs):
    table = golden_table().assign(low=0.9, high=0.9)  # seeds that agree
    other = table.assign(mean=table["mean"] + [change, 0, 0, 0])
    assert bool(differences(other, table)) == differs
    if differs:
        assert differences(other, table) == [f"{CELL}: mean is {0.9 + change:.6g}, expected 0.9 within 0.02."]
    assert bool(differences(other, table, mean_tolerance=0.001))


@pytest.mark.parametrize(("change", "differs"), [(0.24, False), (-0.24, False), (0.26, True), (-0.26, True)])
def test_means_may_differ_as_much_as_both_intervals_over_seeds_say_together(change, differs):
    expected = golden_table().assign(n=3)
    expected.loc[expected.index[0], ["low", "high"]] = [0.75, 1.05]
    found = expected.assign(mean=expected["mean"] + [change, 0, 0, 0])
    found.loc[found.index[0], ["low", "high"]] = [0.5, 0.9]
    # Half the longest side of a triangle of 0.3, 0.4 and 0.5.
    sentence = f"{CELL}: mean is {0.9 + change:.6g}, expected 0.9 within 0.25."
    assert differences(found, expected) == ([sentence] if differs else [])
    # Two seeds do not say how much seeds differ.
    assert "within 0.02." in differences(found.assign(n=2), expected.assign(n=2))[0]


def test_n_is_exact():
    table = golden_table()
    assert differences(table.assign(n=[3, 1, 2, 1]), table) == [f"{CELL}: n is 3, expected 2."]


def test_cells_are_exact():
    table = golden_table()
    assert differences(table.iloc[1:], table) == [f"{CELL}: expected, but not found."]
    assert differences(table, table.iloc[1:]) == [f"{CELL}: found, but not expected."]
    moved = differences(table.assign(x=[0.2, 0.00125, 0, 0.1]), table)
    assert moved == [
        f"{CELL}: expected, but not found.",
        "panel noise, method xent, x 0.2: found, but not expected.",
    ]


def test_no_number_is_a_difference():
    table = golden_table()
    broken = table.assign(mean=[np.nan, *table["mean"][1:]])
    assert differences(broken, table) == [f"{CELL}: mean is nan, expected 0.9 within 0.02."]
    assert differences(table, broken) == [f"{CELL}: mean is 0.9, expected nan within 0.02."]
    assert differences(broken, broken) == []


def test_a_column_that_is_missing_is_named():
    table = golden_table()
    assert differences(table.drop(columns="n"), table) == ["The found table has no column n."]
    assert differences(table, table.drop(columns="mean")) == ["The expected table has no column mean."]


def test_distances_are_compared_by_layer_split_and_step():
    table = golden_table()[["method", "mean", "n"]].assign(
        layer="input", split="test", step=[0.0, 10.0, 20.0, 30.0], method="xent"
    )
    other = table.assign(mean=table["mean"] + [0, 0, 0.5, 0])
    assert differences(other, table) == [
        "method xent, layer input, split test, step 20: mean is 1.45, expected 0.95 within 0.02."
    ]


def test_a_cell_twice_is_a_mistake():
    table = golden_table().iloc[[0, 0]]
    with pytest.raises(ValueError, match="is there twice"):
        differences(table, table)


@pytest.mark.parametrize("name", ["fig5_cifar_ifgsm", "fig9_mnist_fgsm"])
def test_the_cell_that_is_trained_again_can_be_attacked_from_itself(name):
    sweep = read_sweep(name, "smoke", [])
    cell = cheapest_cell(sweep, pd.read_csv(EXPECTED / "smoke" / f"{name}.csv"))
    assert {run.method_name() for run in cell.runs.values()} == {"xent"}
    assert len(cell.runs) == len({run.seed for run in sweep.runs.values()})


def test_a_level_line_is_not_the_cell_that_is_trained_again():
    cell = cheapest_cell(
        read_sweep("figX_gamma", "smoke", []), pd.read_csv(EXPECTED / "smoke" / "figX_gamma.csv")
    )
    assert len({run.margin.gamma for run in cell.runs.values()}) == 1
    assert all(run.method.margin for run in cell.runs.values())
