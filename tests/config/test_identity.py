"""The hash behind a run's id."""

import pytest

from lmsweep.config.identity import run_id


def test_the_order_of_keys_does_not_count_and_values_do():
    assert run_id({"a": 1, "b": {"c": 2, "d": 3}}) == run_id({"b": {"d": 3, "c": 2}, "a": 1})
    ids = {run_id(c) for c in ({"a": 1}, {"a": 2}, {"a": "1"}, {"a": [1]}, {"b": 1}, {"a": 1, "b": None})}
    assert len(ids) == 6


def test_how_a_number_is_written_does_not_count():
    assert run_id({"a": [1, {"b": 2.0}]}) == run_id({"a": [1.0, {"b": 2}]})
    assert run_id({"a": 1}) != run_id({"a": True, "b": 1})
    assert run_id({"a": 0.5}) != run_id({"a": 0})


def test_ids_are_stable_between_releases():
    """Changing this number orphans every stored run: raise SEMANTICS_VERSION on purpose instead."""
    assert run_id({"seed": 0, "margin": {"norm": "inf"}}, version=1) == "d264b96478f7"


def test_a_new_version_is_a_new_id():
    assert run_id({"a": 1}, version=1) != run_id({"a": 1}, version=2)


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        run_id({"a": float("nan")})
