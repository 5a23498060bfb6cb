"""The record has everything behind a figure."""

import json
from pathlib import Path

import pytest

from lmsweep.errors import UserError
from lmsweep.figures.pages.markdown import OLD_RULE
from lmsweep.figures.record import Record, build_record, read_record, read_records, write_record
from lmsweep.figures.statistics import RULE
from lmsweep.files import write_json
from tests.figures.examples import cell, figure
from tests.figures.test_table import golden_table

RESULTS = Path(__file__).parents[2] / "results"
CHECKSUMS = {"checksum", "table"}
KEYS = [
    *["figure", "scale", "title", "paper", "question", "command", "provenance", "training"],
    *[
        "selection",
        "intervals",
        "runs",
        "evaluations",
        "seeds",
        "pilot_seeds",
        "trained",
        "missing",
        "selected",
    ],
    *["claims", "audit", "references", "table"],
]


def record(**changes):
    runs = cell("noise", "xent", 0, [0.1, 0.2]).assign(run=["b", "a"], seed=[7, 3])
    arguments = {
        "scale": "smoke",
        "command": "make reproduce-figure",
        "provenance": {"commit": "abc"},
        "training": {"seconds": 12.5},
        "trained": 4,
        **dict.fromkeys(("pilot_seeds", "missing", "evaluations", "claims", "audit"), ()),
        **changes,
    }
    return build_record(figure(), runs, golden_table(), **arguments)


def test_the_keys_are_those_of_the_interface():
    assert list(record().model_dump()) == KEYS


def test_runs_and_seeds_are_sorted_and_unique():
    built = record()
    assert (built.runs, built.seeds) == (["a", "b"], [3, 7])


def test_selected_hyperparameters_are_those_of_the_table():
    assert record().selected[2].model_dump() == {
        **{"panel": "noise", "method": "margin_l2_all", "x": 0.0, "val_accuracy": pytest.approx(0.7)},
        "hyperparameters": {"g": 1, "d": 0.2},
        "runs": ["123456e78901", "000000000012"],
    }


def test_it_is_json_and_the_same_bytes_again(tmp_path):
    gone = [{"panel": "noise", "method": "xent", "x": 0.5, "reason": "not trained"}]
    for name in ("a.json", "b.json"):
        write_record(record(missing=gone), tmp_path / "made" / name)
    texts = [(tmp_path / "made" / name).read_text() for name in ("a.json", "b.json")]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["references"][0]["points"] == [[0.2, 0.9], [0.4, 0.85]]
    assert json.loads(texts[0])["missing"] == gone


def test_what_is_written_is_read_back(tmp_path):
    audit = [{"method": "xent", "run": "a", "verdict": "sound", "reasons": []}]
    path = tmp_path / "smoke" / "fig2_test.json"
    written = record(audit=audit)
    write_record(written, path)
    assert read_record(path) == written
    assert read_records(tmp_path) == {path: written}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: path.stem)
def test_committed_records_are_those_of_this_schema(path, tmp_path):
    """Those of earlier versions have no checksums."""
    write_record(read_record(path), tmp_path / "again.json")
    again, committed = (json.loads(file.read_bytes()) for file in (tmp_path / "again.json", path))
    assert {key: again[key] for key in committed if key not in CHECKSUMS} == {
        key: value for key, value in committed.items() if key not in CHECKSUMS
    }


@pytest.mark.parametrize("path", sorted(RESULTS.glob("**/*.json")), ids=lambda path: path.stem)
def test_no_committed_record_has_an_impossible_cost(path):
    """A step with a margin does all that one of cross-entropy does, and more."""
    content = json.loads(path.read_text())
    if path.name == "bench.json":
        steps = {
            row: found
            for row, found in content.items()
            if row.startswith(("margin_steps", "exact_mode/mnist")) and "class" in row
        }
        assert steps
        assert all(found["high"] >= 1.0 for found in steps.values()), steps
        assert all(found["environment"]["commit"] for found in content.values())
        assert all(found["environment"]["machine"]["cpu"] for found in content.values())
        return
    assert "cost" not in content
    ratios = [claim for claim in content["claims"] if claim["kind"] == "ratio"]
    assert all("by make bench" in claim["ours"] or claim["n"] == 0 for claim in ratios)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: path.stem)
def test_committed_records_of_the_old_rule_say_so_on_their_page(path):
    record = read_record(path)
    page = (path.parent / "README.md").read_text()
    section = page.partition(f"## {record.figure}\n")[2].partition("\n## ")[0]
    assert (OLD_RULE in section) == (record.intervals != RULE)


def test_a_key_of_a_later_version_is_left_out(tmp_path):
    path = tmp_path / "smoke" / "fig2_test.json"
    write_record(record(), path)
    write_json(path, {**json.loads(path.read_text()), "weather": "fine"})
    assert read_record(path) == record()


def test_every_key_is_needed(tmp_path):
    path = tmp_path / "smoke" / "fig2_test.json"
    for key in Record.model_fields.keys() - CHECKSUMS - {"pilot_seeds"}:  # which older records lack
        write_record(record(), path)
        left_out = (key, "checksum")
        rest = {name: value for name, value in json.loads(path.read_text()).items() if name not in left_out}
        path.write_text(json.dumps(rest))
        with pytest.raises(UserError, match=f"is damaged \\({key}: Field required\\)"):
            read_record(path)


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="finite number"):
        record(missing=[{"panel": "noise", "method": "xent", "x": float("nan"), "reason": "a"}])
