"""The record has everything behind a figure, and no time."""

import json

import pytest

from lmsweep.figures.record import build_record, write_record
from tests.figures.examples import cell, figure
from tests.figures.test_table import golden_table

KEYS = [
    *["figure", "scale", "title", "paper", "question", "command", "provenance", "selection", "runs"],
    *["evaluations", "seeds", "trained", "missing", "selected", "claims", "audit", "cost", "references"],
]


def record(**changes):
    runs = cell("noise", "xent", 0, [0.1, 0.2]).assign(run=["b", "a"], seed=[7, 3])
    arguments = {
        "scale": "smoke",
        "command": "make reproduce-figure",
        "provenance": {"commit": "abc"},
        "points": runs,
        "table": golden_table(),
        "trained": 4,
        **changes,
    }
    return build_record(figure(), **arguments)


def test_the_keys_are_those_of_the_interface():
    assert list(record()) == KEYS


def test_runs_seeds_and_evaluations_are_sorted_and_unique():
    built = record(evaluations=["f", "e", "f"])
    assert (built["runs"], built["seeds"], built["evaluations"]) == (["a", "b"], [3, 7], ["e", "f"])


def test_selected_hyperparameters_are_those_of_the_table():
    assert record()["selected"][2] == {
        **{"panel": "noise", "method": "margin_l2_all", "x": 0.0, "val_accuracy": pytest.approx(0.7)},
        "hyperparameters": {"gamma": 1, "dropout": 0.2},
        "runs": ["123456e78901", "000000000012"],
    }


def test_it_is_json_and_the_same_bytes_again(tmp_path):
    for name in ("a.json", "b.json"):
        write_record(record(missing=[{"panel": "noise", "x": 0.5}]), tmp_path / "made" / name)
    texts = [(tmp_path / "made" / name).read_text() for name in ("a.json", "b.json")]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["references"][0]["points"] == [[0.2, 0.9], [0.4, 0.85]]


def test_what_json_cannot_say_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_record(record(cost=[{"ratio": float("nan")}]), tmp_path / "a.json")
