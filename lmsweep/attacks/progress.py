"""A progress bar on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def tracked(items: Iterable[T], total: int | None, label: str) -> Iterator[T]:
    """Pass `items` on and show how many have gone by."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield from items
        return
    yield from track(items, description=label, total=total, console=console, transient=True)
