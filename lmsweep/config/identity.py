"""A run's identity: the hash of what can change its result."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Raise this when training changes in a way that makes old results incomparable: every run gets a new id.
# 2: a run keeps its best and its last weights and the results of both; which ones count, a figure says.
SEMANTICS_VERSION = 2


def run_id(config: Mapping[str, Any], version: int = SEMANTICS_VERSION) -> str:
    """Return 12 hexadecimal digits that depend on the values in `config`, not on the order of its keys."""
    content = {"version": version, "config": _canonical(config)}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _canonical(value: Any) -> Any:
    """The same value however it was written: `model.width=1` and `model.width=1.0` are one run."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
