"""Nested keys as dotted ones, as they are written on the command line."""

from collections.abc import Mapping
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
