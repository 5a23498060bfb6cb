"""A run's identity: the hash of what can change its result."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Raise this when training changes in a way that makes old results incomparable: every run gets a new id.
SEMANTICS_VERSION = 1


def run_id(config: Mapping[str, Any], version: int = SEMANTICS_VERSION) -> str:
    """Return 12 hexadecimal digits that depend on the values in `config`, not on the order of its keys."""
    text = json.dumps({"version": version, "config": config}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
