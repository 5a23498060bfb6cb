"""Change an attribute of one object for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: object, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of this object only, and afterwards leave the object as it was."""
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)
