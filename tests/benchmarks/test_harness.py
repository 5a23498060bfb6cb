"""The suite fails when a bar is missed, and says which; what it compares is the same thing done twice."""

import json
import math
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import benchmarks
from benchmarks import harness
from benchmarks.__main__ import main
from benchmarks.bars import BARS, at_least, at_most


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A suite of one module, `fake`, whose rows have these bars and are measured to be these values."""

    def run(bars, values, *arguments):
        monkeypatch.setenv("LMSWEEP_OUTPUTS", str(tmp_path))
        for name in list(BARS):
            monkeypatch.delitem(BARS, name)
        for name, bar in bars.items():
            monkeypatch.setitem(BARS, f"fake/{name}", bar)
        fake = ModuleType("benchmarks.fake")
        fake.measure = lambda rows: [harness.summary(f"fake/{k}", v) for k, v in values.items()]
        monkeypatch.setitem(sys.modules, "benchmarks.fake", fake)
        return main(list(arguments))

    return run


def test_a_missed_bar_fails_with_the_rows_name(suite, capsys):
    bars = {"quick": at_most(2), "slow": at_most(1.5), "rare": at_least(3), "told": None}
    values = {"quick": [1.0], "slow": [1.7, 1.6, 1.8], "rare": [2.5], "told": [99.0]}
    assert suite(bars, values) == 1
    said = capsys.readouterr()
    assert said.err.splitlines()[1:] == [
        "fake/slow: 1.700 x [1.600, 1.800] misses its bar <= 1.5",
        "fake/rare: 2.500 x [2.500, 2.500] misses its bar >= 3",
    ]
    assert said.out.count("MISSED") == 2


def test_bars_that_are_met_pass_and_are_written_down(suite, tmp_path, capsys):
    assert suite({"quick": at_most(2)}, {"quick": [1.0, 1.2, 1.1]}) == 0
    written = json.loads((tmp_path / "bench" / "fake.json").read_text())
    (row,) = written["rows"]
    assert (row["row"], row["value"], row["repeats"], row["bar"]) == ("fake/quick", 1.1, 3, "<= 2")
    assert row["low"] <= row["value"] <= row["high"]
    assert {"commit", "torch", "machine", "threads"} <= written["environment"].keys()
    assert "| fake/quick | 1.1 x | 1 to 1.2 | 3 | <= 2 |" in (tmp_path / "bench" / "table.md").read_text()
    assert "MISSED" not in capsys.readouterr().out


@pytest.mark.parametrize("values", [{}, {"quick": [math.nan]}], ids=["no value", "no number"])
def test_a_row_without_a_value_fails(suite, values, capsys):
    assert suite({"quick": at_most(2)}, values) == 1
    assert "fake/quick" in capsys.readouterr().err.splitlines()[-1]


def test_one_row_can_be_asked_for(suite, capsys):
    bars, values = {"quick": at_most(2), "slow": at_most(1)}, {"quick": [1.0], "slow": [5.0]}
    assert suite(bars, values, "quick") == 0
    assert suite(bars, values, "fake/*low") == 1
    assert suite(bars, values, "absent") == 2
    assert "No row is called 'absent'" in capsys.readouterr().err


def test_published_rows_join_those_that_are_there_with_machine_and_commit(tmp_path):
    path = tmp_path / "bench.json"
    for row, values in (("a/one", [1.0, 2.0, 3.0]), ("a/two", [4.0]), ("a/one", [5.0, 5.0])):
        harness.publish([harness.summary(row, values)], path)
    written = json.loads(path.read_text())
    assert {row: (one["value"], one["repeats"]) for row, one in written.items()} == {
        "a/one": (5.0, 2),
        "a/two": (4.0, 1),
    }
    assert {"commit", "machine"} <= written["a/two"]["environment"].keys()


def test_ways_take_turns_and_the_first_turn_does_not_count():
    order = []
    times = harness.alternate({"a": partial(order.append, "a"), "b": partial(order.append, "b")}, rounds=3)
    assert "".join(order) == "baabbaab"
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


def test_a_ratio_is_the_median_of_pairs():
    found = harness.ratio("row", [2.0, 30.0, 6.0], [1.0, 10.0, 1.0])
    assert (found.value, found.low, found.high) == (3.0, 2.0, 6.0)


def test_every_row_has_its_module():
    folder = Path(benchmarks.__file__).parent
    modules = {row.partition("/")[0] for row in BARS}
    for name in modules:
        assert "def measure(" in (folder / f"{name}.py").read_text()
    measuring = {file.stem for file in folder.glob("*.py") if "\ndef measure(" in file.read_text()}
    assert measuring - {"harness"} == modules
