"""Nested keys as dotted ones, as they are written on the command line."""

from collections.abc import Mapping
from typing import Any


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; an empty group is a value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            found |= dotted(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
