"""A golden CSV, and back again."""

import numpy as np

from lmsweep.figures.aggregate import aggregate, ordered
from lmsweep.figures.select import best_validation
from lmsweep.figures.table import read_csv, to_csv, write_csv
from tests.figures.examples import cell, figure, points

A, B = '{"gamma": 1, "dropout": 0.2}', '{"gamma": 4}'
GOLDEN = """\
method,x,mean,low,high,n,selected,panel,setting,val
xent,0,0.9,0.8,1,2,xent{}0 xent{}1,noise,{},0.5
xent,0.00125,0.333333,0.333333,0.333333,1,xent{}0,noise,{},0.5
margin_l2_all,0,0.95,0.94,0.96,2,123456e78901 000000000012,noise,"{""gamma"": 1, ""dropout"": 0.2}",0.7
margin_l2_all,0.1,0.123457,0.123457,0.123457,1,"margin_l2_all{""gamma"": 4}0",white,"{""gamma"": 4}",0.5
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
    return ordered(aggregate(best_validation(cells, ["white"])), figure())


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
