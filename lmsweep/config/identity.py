"""A run's identity: the hash of what can change its result."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Raise this when training changes in a way that makes old results incomparable: every run gets a new id.
SEMANTICS_VERSION = 1
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
