"""Configurations as plain values: dotted keys, and the hash that is the identity of a job."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; an empty group is a value."""
    leaves: dict[str, Any] = {}
    _gather(tree, prefix, leaves)
    return leaves


def _gather(tree: Mapping[str, Any], prefix: str, leaves: dict[str, Any]) -> None:
    # Into one dictionary, because figures do this for ten thousand runs.
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            _gather(value, f"{prefix}{key}.", leaves)
        else:
            leaves[f"{prefix}{key}"] = value


def drop(tree: dict[str, Any], keys: Iterable[str]) -> None:
    """Take dotted keys out of a tree, where they are there."""
    for key in keys:
        *parents, last = key.split(".")
        node = tree
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)


# Raise this when training changes in a way that makes old results incomparable: every run gets a new id.
# 2: a run keeps its best and its last weights and the results of both; which ones count, a figure says.
SEMANTICS_VERSION = 2
# Made once, because a sweep of 50,000 runs asks for three identities of each.
_ENCODER = json.JSONEncoder(sort_keys=True, allow_nan=False)


def run_id(config: Mapping[str, Any], version: int = SEMANTICS_VERSION) -> str:
    """Return 12 hexadecimal digits that depend on the values in `config`, not on the order of its keys."""
    text = _ENCODER.encode({"version": version, "config": _canonical(config)})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _canonical(value: Any) -> Any:
    """The same value however it was written: `model.width=1` and `model.width=1.0` are one run."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return [_canonical(item) for item in value] if isinstance(value, list | tuple) else value
