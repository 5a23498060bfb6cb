"""From points to a table, a golden CSV, and back again."""

import numpy as np
import pandas as pd
import pytest

from lmsweep.figures.record import COLUMNS, aggregate, missing, ordered, read_csv, to_csv, write_csv
from lmsweep.figures.select import best_validation
from tests.figures.examples import cell, figure, points

A, B = '{"g": 1, "d": 0.2}', '{"gamma": 4}'
# t is 12.7062 with one degree of freedom: 0.9 +- 12.7062 * 0.1 and 0.95 +- 12.7062 * 0.01.
GOLDEN = """\
method,x,mean,low,high,n,selected,panel,setting,val,values
xent,0,0.9,-0.37062,2.17062,2,xent{}0 xent{}1,noise,{},0.5,0.8 1
xent,0.00125,0.333333,nan,nan,1,xent{}0,noise,{},0.5,0.333333
margin_l2_all,0,0.95,0.822938,1.07706,2,123456e78901 000000000012,noise,"{""g"": 1, ""d"": 0.2}",0.7,0.94 0.96
margin_l2_all,0.1,0.123457,nan,nan,1,"margin_l2_all{""gamma"": 4}0",white,"{""gamma"": 4}",0.5,0.123457
"""


def golden_table():
    cells = points(
        cell("white", "margin_l2_all", 0.1, [0.1234567], setting=B),
        cell("noise", "xent", 0.00125, [1 / 3]),
        cell("noise", "margin_l2_all", 0, [0.94, 0.96], [0.6, 0.8], A).assign(
            run=["123456e78901", "000000000012"]
        ),
        cell("noise", "margin_l2_all", 0, [0.99, 0.99], [0.6, 0.6], B),
        cell("noise", "xent", 0, [0.8, 1.0]),
    )
    return ordered(aggregate(best_validation(cells)), figure())


def test_golden_csv(tmp_path):
    write_csv(golden_table(), tmp_path / "made" / "a.csv")
    assert (tmp_path / "made" / "a.csv").read_text() == GOLDEN


def test_what_is_read_is_written_again_to_the_byte(tmp_path):
    path = tmp_path / "a.csv"
    write_csv(golden_table(), path)
    table = read_csv(path)
    assert to_csv(table) == GOLDEN
    assert table["x"].dtype == float
    assert table["n"].tolist() == [2, 1, 2, 1]


def test_ids_that_look_like_numbers_stay_text(tmp_path):
    path = tmp_path / "a.csv"
    write_csv(golden_table().assign(selected=["123456e78901", "000000000012", "nan", ""]), path)
    assert read_csv(path)["selected"].tolist() == ["123456e78901", "000000000012", "nan", ""]


def test_a_table_of_distances_is_read_back(tmp_path):
    path = tmp_path / "a.csv"
    row = {"method": "xent", "layer": "input", "split": "test", "step": 50000, "mean": -0.0, "low": np.nan}
    table = golden_table().head(1)[["n"]].assign(**row, high=1e-9)
    write_csv(table, path)
    assert path.read_text().splitlines()[1] == "2,xent,input,test,50000,0,nan,1e-09"
    assert read_csv(path)["step"].tolist() == [50000.0]


def test_the_table_has_mean_interval_n_and_the_runs_in_order_of_seed():
    table = aggregate(
        points(cell("noise", "xent", 0.8, [0.2, 0.6], [0.3, 0.5]), cell("noise", "xent", 0, [0.9])).iloc[::-1]
    )
    assert list(table.columns) == COLUMNS
    assert table["x"].tolist() == [0.0, 0.8]
    row = table.iloc[1]
    assert (row["mean"], row["low"], row["high"], row["n"]) == (
        *(pytest.approx(0.4), pytest.approx(0.4 - 12.7062 * 0.2), pytest.approx(0.4 + 12.7062 * 0.2), 2),
    )
    assert row["values"] == "0.2 0.6"
    assert row["selected"] == "xent{}0 xent{}1"
    assert row["val"] == pytest.approx(0.4)


def test_a_point_without_a_number_does_not_count():
    table = aggregate(points(cell("noise", "xent", 0.8, [0.2, np.nan]), cell("noise", "xent", 0.9, [np.nan])))
    assert table[["x", "mean", "n", "selected"]].to_numpy().tolist() == [[0.8, 0.2, 1, "xent{}0"]]


def test_two_settings_in_a_cell_are_a_mistake():
    with pytest.raises(ValueError, match="a seed is there twice"):
        aggregate(points(cell("noise", "xent", 0, [0.1]), cell("noise", "xent", 0, [0.1], setting="{1}")))


def test_rows_come_in_the_order_of_the_figure():
    table = aggregate(
        points(
            *(cell("white", m, x, [0.1]) for m in ("xent", "margin_l2_all") for x in (0.2, 0.1)),
            *(cell("noise", m, 0.0, [0.1]) for m in ("margin_l1_all", "xent")),
        )
    )
    rows = ordered(table, figure())[["panel", "method", "x"]].to_numpy().tolist()
    assert rows == [
        *[["noise", "xent", 0.0], ["noise", "margin_l1_all", 0.0]],
        *[["white", "margin_l2_all", 0.1], ["white", "margin_l2_all", 0.2]],
        *[["white", "xent", 0.1], ["white", "xent", 0.2]],
    ]
    with pytest.raises(ValueError, match="hinge"):
        ordered(aggregate(cell("noise", "hinge", 0, [0.1])), figure())


def test_expected_cells_without_a_number_are_missing_with_their_reason():
    there = points(cell("noise", "xent", 0.1 + 0.2, [0.5]), cell("noise", "margin_l2_all", 0.3, [np.nan]))
    expected = [
        {"panel": "white", "method": "xent", "x": 0.1, "reason": "not evaluated"},
        {"panel": "noise", "method": "margin_l2_all", "x": 0.3, "reason": "failed: it diverged"},
        {"panel": "noise", "method": "xent", "x": 0.3, "reason": "not trained"},
        {"panel": "noise", "method": "xent", "x": 0.5, "reason": "not trained"},
    ]
    assert missing(there, figure(), expected) == [expected[3], expected[1], expected[0]]
    assert missing(there, figure(), []) == []
    empty = pd.DataFrame(columns=there.columns)
    assert len(missing(empty, figure(), expected)) == 4


def test_nothing_at_all_is_an_empty_table():
    assert aggregate(cell("noise", "xent", 0, [])).empty
