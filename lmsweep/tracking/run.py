"""The mirror of a training run, by its configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lmsweep.config import RunConfig
from lmsweep.tracking.card import Card, folder_of, known_sweeps, run_card
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
    card = run_card(config, name, known_sweeps(config.outputs, [name]))
    return open_tracker(config, card)


def open_tracker(config: RunConfig, card: Card) -> Tracker:
    """A tracker of the kind that a run's configuration asks for."""
    folder = folder_of(config.tracking, config.outputs)
    if config.tracking.name == "tensorboard":
        from lmsweep.tracking.tensorboard_run import TensorBoardRun

        return TensorBoardRun(card, config.tracking, folder)
    from lmsweep.tracking.wandb_run import WandbRun

    return WandbRun(card, config.tracking, folder)
