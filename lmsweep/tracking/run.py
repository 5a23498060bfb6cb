"""The mirror of a training run, by its configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lmsweep.config.run import RunConfig, TrackingConfig
from lmsweep.store.sweeps import sweeps_of
from lmsweep.tracking.card import Card, folder_of, run_card
from lmsweep.tracking.tracker import Guard, Tracker, guarded


@contextmanager
def tracked(config: RunConfig, name: str) -> Iterator[Guard]:
    """The guarded mirror of the run with the id `name`; it begins when it is opened."""
    with guarded(partial(open_run, config, name)) as guard:
        yield guard


def open_run(config: RunConfig, name: str) -> Tracker:
    """Begin to mirror a run, whatever `tracking` says."""
    if config.tracking.name == "none":
        return Tracker()
    card = run_card(config, name, sweeps_of(Path(config.outputs), name))
    return open_tracker(config.tracking, config.outputs, card)


def open_tracker(options: TrackingConfig, outputs: str | Path, card: Card) -> Tracker:
    """A tracker of the kind that is asked for."""
    folder = folder_of(options, outputs)
    if options.name == "tensorboard":
        from lmsweep.tracking.tensorboard_run import TensorBoardRun

        return TensorBoardRun(card, options, folder)
    from lmsweep.tracking.wandb_run import WandbRun

    return WandbRun(card, options, folder)
