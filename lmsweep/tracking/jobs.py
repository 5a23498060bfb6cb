"""The mirrors of jobs: a run while it trains, an evaluation under an attack, a figure with its claims."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.config.groups import TrackingConfig
from lmsweep.config.run import RunConfig
from lmsweep.store.sweeps import sweeps_of
from lmsweep.tracking.card import Card, attack_card, attack_metric, figure_card, folder_of, run_card
from lmsweep.tracking.tracker import Guard, Line, Tracker, guarded

if TYPE_CHECKING:
    from lmsweep.figures.record import Record


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
