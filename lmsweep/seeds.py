"""One seed per purpose, so that a draw added in one place changes no other."""

import hashlib


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 63-bit seed that depends on the run's `seed` and the name of the `purpose` only."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
