"""Mirrors of jobs: a run while it trains, an evaluation under an attack, a figure with its claims.

A mirror is told what a `Tracker` can be told; a guard keeps its troubles away from the job.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lmsweep.config.groups import TrackingConfig
from lmsweep.config.run import RunConfig
from lmsweep.store.sweeps import sweeps_of
from lmsweep.tracking.card import Card, attack_card, attack_metric, figure_card, folder_of, run_card

if TYPE_CHECKING:
    from lmsweep.figures.record import Record
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


def tracked(config: RunConfig, name: str) -> AbstractContextManager[Guard]:
    """The guarded mirror of the run with the id `name`; it begins when it is opened."""

    def begin() -> Tracker:
        if config.tracking.name == "none":
            return Tracker()
        card = run_card(config, name, sweeps_of(Path(config.outputs), name))
        return open_tracker(config.tracking, config.outputs, card)

    return guarded(begin)


def open_tracker(options: TrackingConfig, outputs: str | Path, card: Card) -> Tracker:
    """A tracker of the kind that is asked for."""
    folder = folder_of(options, outputs)
    if options.name == "tensorboard":
        from lmsweep.tracking.tensorboard_run import TensorBoardRun

        return TensorBoardRun(card, options, folder)
    from lmsweep.tracking.wandb_run import WandbRun

    return WandbRun(card, options, folder)


def mirror_attack(
    options: TrackingConfig, outputs: str | Path, runs: Mapping[str, RunConfig], results: Mapping[str, Any]
) -> None:
    """Mirror an evaluation under an attack: one mirror for each of the attacked runs.

    A mirror has the curve as rows, a table and a plot.
    """
    if options.name == "none":
        return
    columns = ("strength", "accuracy", "zero_gradients")
    for name, config in runs.items():
        curve = results["curves"][name]
        card = attack_card(config, name, {**results, **curve}, sweeps_of(Path(outputs), name))
        attack = card.config["attack_name"]
        rows = list(zip(curve["strengths"], curve["accuracy"], curve["zero_gradients"], strict=True))
        with _opened(options, outputs, card) as tracker:
            for number, row in enumerate(rows):
                values = {attack_metric(attack, key): value for key, value in zip(columns, row, strict=True)}
                tracker.log({key: value for key, value in values.items() if value is not None}, number)
            title = f"{attack.replace('_', ' ')}, accuracy by {results['unit']}"
            tracker.table(attack_metric(attack, "curve"), columns, rows, Line("strength", "accuracy", title))


def mirror_figure(options: TrackingConfig, outputs: str | Path, record: "Record", picture: Path) -> None:
    """Mirror a figure: the picture, its points, and the claims with their verdicts."""
    if options.name == "none":
        return
    import pandas as pd  # takes half a second, which a run need not spend

    from lmsweep.figures.record import ClaimRow, claim_rows

    csv = picture.with_suffix(".csv")
    points = pd.read_csv(csv, keep_default_na=False)
    with _opened(options, outputs, figure_card(record)) as tracker:
        tracker.picture("figure", picture)
        tracker.table("claims", ClaimRow._fields, claim_rows(record.claims))
        for panel, part in points.groupby("panel", sort=False):
            line = Line("x", "mean", f"{record.title}: {panel}", "method")
            tracker.table(f"points/{panel}", list(part.columns), part.to_numpy().tolist(), line)
        tracker.keep(csv)
        tracker.keep(picture.with_suffix(".json"))


@contextmanager
def _opened(options: TrackingConfig, outputs: str | Path, card: Card) -> Iterator[Guard]:
    with guarded(partial(open_tracker, options, outputs, card)) as guard:
        guard.open()
        yield guard
