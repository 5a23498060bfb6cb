"""The mirrors of what comes after training: an evaluation under an attack, and a figure with its claims."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lmsweep.config.run import RunConfig, TrackingConfig
from lmsweep.figures.claims.verdicts import ClaimRow, claim_rows
from lmsweep.figures.record import Record
from lmsweep.store.sweeps import sweeps_of
from lmsweep.tracking.card import Card, attack_card, attack_metric, figure_card
from lmsweep.tracking.run import open_tracker
from lmsweep.tracking.tracker import Guard, Line, guarded


def mirror_attack(
    options: TrackingConfig, outputs: str | Path, runs: Mapping[str, RunConfig], results: Mapping[str, Any]
) -> None:
    """An evaluation of these runs under an attack, one mirror for each of them."""
    if options.name == "none":
        return
    for name, config in runs.items():
        _mirror_curve(options, outputs, name, config, results)


def _mirror_curve(
    options: TrackingConfig, outputs: str | Path, name: str, config: RunConfig, evaluation: Mapping[str, Any]
) -> None:
    """The curve of one run, as rows, a table and a plot."""
    results = {**evaluation, **evaluation["curves"][name]}
    card = attack_card(config, name, results, sweeps_of(Path(outputs), name))
    columns, attack = ("strength", "accuracy", "zero_gradients"), card.config["attack_name"]
    rows = list(zip(*(results[key] for key in ("strengths", "accuracy", "zero_gradients")), strict=True))
    with _opened(options, outputs, card) as tracker:
        for number, row in enumerate(rows):
            values = {attack_metric(attack, key): value for key, value in zip(columns, row, strict=True)}
            tracker.log({key: value for key, value in values.items() if value is not None}, number)
        title = f"{attack.replace('_', ' ')}, accuracy by {results['unit']}"
        tracker.table(attack_metric(attack, "curve"), columns, rows, Line("strength", "accuracy", title))


def mirror_figure(options: TrackingConfig, outputs: str | Path, record: Record, picture: Path) -> None:
    """A figure: the picture, its points, and the claims with their verdicts."""
    if options.name == "none":
        return
    csv = picture.with_suffix(".csv")
    points = pd.read_csv(csv, keep_default_na=False)
    with _opened(options, outputs, figure_card(record)) as tracker:
        tracker.picture("figure", picture)
        tracker.table("claims", ClaimRow._fields, claim_rows(record.claims))
        for panel, part in _panels(points):
            line = Line("x", "mean", f"{record.title}: {panel}", "method")
            tracker.table(f"points/{panel}", list(part.columns), part.to_numpy().tolist(), line)
        tracker.keep(csv)
        tracker.keep(picture.with_suffix(".json"))


def _panels(points: pd.DataFrame) -> Sequence[tuple[str, pd.DataFrame]]:
    if points.empty:
        return []
    return [(str(name), part) for name, part in points.groupby("panel", sort=False)]


@contextmanager
def _opened(options: TrackingConfig, outputs: str | Path, card: Card) -> Iterator[Guard]:
    with guarded(partial(open_tracker, options, outputs, card)) as guard:
        guard.open()
        yield guard
