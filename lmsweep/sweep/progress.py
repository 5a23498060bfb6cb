"""How far a plan is: a live table on a terminal, one line per job elsewhere.

The bar and the live display are rich's; what is ours is which jobs are shown, and the lines of a log file.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

LAST_RESULTS = 5
# Without a line in a log file until one says what is running; then twice as long, and so on.
QUIET_SECONDS = 5.0
SAID_BYTES = 500  # of the end of a job's log, where its last line is
FILE_WIDTH = 200  # of a table that goes to a file, where there is no edge


def duration(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def label(about: Mapping[str, Any]) -> str:
    """A job in a few words."""
    words = [str(about.get("method", "?")), str(about.get("data", ""))]
    for key, plain in (("label_noise", 0.0), ("fraction", 1.0), ("gamma", None), ("kind", None)):
        value = about.get(key, plain)
        if value != plain:
            words.append(f"{key}={value:g}" if isinstance(value, float | int) else f"{key}={value}")
    return " ".join([*words, f"seed={about.get('seed', '?')}"])


class Progress(Bar):
    """Counts, and what to show of them. Everything goes to stderr: stdout belongs to results."""

    def __init__(
        self,
        about: Mapping[str, Mapping[str, Any]],
        workers: int,
        noun: str = "runs",
        console: Console | None = None,
    ) -> None:
        self.about = about
        self.total = len(about)
        self.workers = workers
        self.counts = {"done": 0, "cached": 0, "failed": 0}
        self.began: dict[str, float] = {}
        self.seconds: list[float] = []
        self.last: list[str] = []
        self.logs: dict[str, Path] = {}
        self.quiet, self.spoke = QUIET_SECONDS, time.monotonic()
        console = console or Console(file=sys.stderr)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        live = console.is_terminal
        # Draws a first picture, so that all of the above must be there.
        super().__init__(*columns, console=console, refresh_per_second=4, transient=True, disable=not live)
        self.task = self.add_task(noun, total=self.total)

    @property
    def left(self) -> int:
        """Jobs that are neither done, cached nor failed."""
        return self.total - sum(self.counts.values())

    def time_left(self) -> float | None:
        """Seconds until the last job ends, when the others take as long as those that have ended."""
        if not self.seconds:
            return None
        typical = sum(self.seconds) / len(self.seconds)
        now = time.monotonic()
        spent = sum(min(now - began, typical) for began in self.began.values())
        return (self.left * typical - spent) / self.workers

    def started(self, name: str, seconds_ago: float = 0.0, log: Path | None = None) -> None:
        """A job began in a process or a Slurm job of ours; the last line of its `log` says how far it is."""
        self.began[name] = time.monotonic() - seconds_ago
        if log is not None:
            self.logs[name] = log

    def tick(self) -> None:
        """Called now and then; in a log file nothing else would tell of jobs that take long."""
        if not self.disable or not self.began or time.monotonic() - self.spoke < self.quiet:
            return
        self.quiet *= 2
        name, began = next(iter(self.began.items()))
        words = [name, label(self.about[name]), self.says(name), duration(time.monotonic() - began)]
        others = f"and {len(self.began) - 1} more" if len(self.began) > 1 else ""
        self._line("  ".join(word for word in ("running:", *words, others) if word))

    def says(self, name: str) -> str:
        """The last line that a job printed."""
        log = self.logs.get(name)
        if log is None or not log.exists():
            return ""
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - SAID_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def done(self, name: str, summary: str) -> None:
        """A job of ours ended well; `summary` is what it found."""
        seconds = self._stop_clock(name)
        if seconds is not None:
            self.seconds.append(seconds)
        self._count("done", f"{name}  {label(self.about[name])}  {summary}  {seconds or 0:.1f} s")

    def failed(self, name: str, reason: str) -> None:
        """A job failed, now or before."""
        self._stop_clock(name)
        self._count("failed", f"{name}  {label(self.about[name])}  failed: {reason}")

    def cached(self, name: str) -> None:
        """The results were there already, or another process made them."""
        self._count("cached", None)

    def elsewhere(self, name: str) -> None:
        """Another process has the job."""
        self._stop_clock(name)

    def stopped(self, name: str) -> None:
        """A process of ours ended without a result; the job goes on from its last checkpoint."""
        self._stop_clock(name)
        self._line(f"{name}  {label(self.about[name])}  stopped before its end")

    def _stop_clock(self, name: str) -> float | None:
        began = self.began.pop(name, None)
        return None if began is None else time.monotonic() - began

    def _count(self, what: str, line: str | None) -> None:
        self.counts[what] += 1
        self.update(self.task, completed=self.total - self.left)
        if line is not None:
            self._line(line)

    def _line(self, line: str) -> None:
        self.last = [*self.last[1 - LAST_RESULTS :], line]
        self.spoke = time.monotonic()
        if self.disable:
            place = f"[{self.total - self.left:>{len(str(self.total))}}/{self.total}]"
            print(place, line, file=self.console.file, flush=True)

    def summary(self) -> str:
        """The counts in one line."""
        counts = [f"{number} {what}" for what, number in self.counts.items()]
        parts = [*counts, f"{len(self.began)} running", f"{self.left} left"]
        remaining = self.time_left()
        return "  ".join([*parts, f"about {duration(remaining)} to go"] if remaining else parts)

    def get_renderables(self) -> Iterable[RenderableType]:
        """The live picture."""
        now = time.monotonic()
        running = Table.grid(padding=(0, 2))
        for name, began in list(self.began.items()):
            running.add_row(name, label(self.about[name]), duration(now - began), self.says(name))
        yield self.make_tasks_table(self.tasks)
        yield Text(self.summary())
        yield running
        for line in self.last:
            yield Text(line, style="red" if "failed:" in line else "dim", no_wrap=True, overflow="ellipsis")


@contextmanager
def probing(count: int, console: Console | None = None) -> Iterator[Callable[[], object]]:
    """Show that short runs are timed, and how many of them have ended: call what this gives for each."""
    console = console or Console(file=sys.stderr)
    what = f"Timing a few steps of {count} {'kind' if count == 1 else 'kinds'} of runs"
    if not console.is_terminal:
        print(f"{what} ...", file=console.file, flush=True)
        yield lambda: None
        return
    with Bar(TextColumn(what), BarColumn(), MofNCompleteColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=count)
        yield lambda: bar.advance(task)


def print_failures(rows: Sequence[Sequence[str]], noun: str) -> None:
    """What went wrong: id, what it was, why, and where to read more."""
    head = (noun.removesuffix("s"), "what", "reason", "details")
    table = Table(*head, title=f"Failed {noun}", title_justify="left")
    for row in rows:
        table.add_row(*(Text(text, overflow="fold") for text in row))
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(table)
