"""What a mirror of a run is told, and the guard that keeps its troubles away from the run."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from lmsweep.training.evaluate import Portrait

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """Which columns of a table to plot: one line per value of `group`."""

    x: str
    y: str
    title: str
    group: str | None = None


class Tracker:
    """Mirrors one run; this one mirrors nothing, as `tracking=none` asks for."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """A line of metrics.jsonl; a run that goes on tells all lines it keeps again, from the first one."""

    def describe(
        self, results: Mapping[str, Any], portrait: "Callable[[], Portrait | None]", checkpoint: Path
    ) -> None:
        """What results.json says, what there is to see (None without weights), and where the weights are."""

    def table(
        self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], line: Line | None = None
    ) -> None:
        """A table, and with `line` a plot of it."""

    def picture(self, name: str, file: Path) -> None:
        """An image."""

    def keep(self, file: Path) -> None:
        """A file as it is."""

    def close(self, exit_code: int, *, given_back: bool = False) -> None:
        """The end; `given_back` when the run goes on later from its last checkpoint."""


class Guard(Tracker):
    """A tracker that is opened late; after its first error, told on stderr, it hears of the end only."""

    def __init__(self, open_tracker: Callable[[], Tracker]) -> None:
        self._open = open_tracker
        self._tracker: Tracker | None = None
        self._broken = False

    def open(self) -> None:
        """Begin to mirror; before this call the guard passes nothing on."""
        self._tracker = Tracker()
        self._tracker = self._guarded(lambda _: self._open())
        self._broken = self._tracker is None

    def close(self, exit_code: int, *, given_back: bool = False) -> None:
        """Tell the end once, whatever happened before."""
        self._broken = False
        self._guarded(lambda tracker: tracker.close(exit_code, given_back=given_back))
        self._tracker = None

    def _guarded(self, call: Callable[[Tracker], T]) -> T | None:
        if self._tracker is None or self._broken:
            return None
        try:
            return call(self._tracker)
        except Exception as error:
            self._broken = True
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"Tracking ends here, the work goes on: {told}", file=sys.stderr, flush=True)
            return None


def _passed_on(name: str) -> Callable[..., None]:
    def call(guard: Guard, *arguments: Any, **options: Any) -> None:
        guard._guarded(lambda tracker: getattr(tracker, name)(*arguments, **options))

    return call


for _name in ("log", "describe", "table", "picture", "keep"):
    setattr(Guard, _name, _passed_on(_name))


@contextmanager
def guarded(open_tracker: Callable[[], Tracker]) -> Iterator[Guard]:
    """A guard whose tracker, if it was opened, hears how the block ended."""
    guard = Guard(open_tracker)
    try:
        yield guard
    except BaseException as error:
        guard.close(1, given_back=not isinstance(error, Exception))
        raise
    guard.close(0)
