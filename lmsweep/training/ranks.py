"""The other processes of a run over several devices: started here, or found as the tasks of a Slurm step.

Each is made from the run's frozen configuration, never from a command line. Rank 0 takes the lease, writes
and speaks; the others take part in the training and leave no trace. When one of them dies the run ends at
once: with the error that it raised, or given back when it was killed.
"""

import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lmsweep.config.run import RunConfig
from lmsweep.errors import GivenBackError, UserError
from lmsweep.processes import Ended, Pool

if TYPE_CHECKING:
    from lmsweep.store.folder import JobFolder
    from lmsweep.training.world import World

HERE = "127.0.0.1"
# For rank 0 to notice by itself that another rank is gone, and for a rank to hear why rank 0 stopped.
GRACE_SECONDS = 15.0
# After that it is stuck in a call that nothing but the end of the process ends.
STUCK_SECONDS = 30.0


class RankDiedError(GivenBackError):
    """A process of the run was killed; the run is given back and goes on from its last checkpoint."""


class LocalRanks:
    """The other processes of a run on this machine: there while it trains, gone when it does not."""

    def __init__(self, config: RunConfig, folder: "JobFolder") -> None:
        self.config = config
        self.folder = folder
        self.size = config.trainer.processes

    @contextmanager
    def joined(self) -> "Iterator[World]":
        """Start them, and end them whatever happens."""
        from lmsweep.training.world import World, abandon_group, open_store, process_group

        store = open_store(HERE)
        pool = Pool([{}] * (self.size - 1), preload=("lmsweep.training.preload",))
        watch = _Watch(pool, self._stuck)
        try:
            for rank in range(1, self.size):
                world = World(rank, self.size, rank)
                pool.start(
                    f"rank {rank}", partial(_take_part, self.config, self.folder.path, world, store.port)
                )
            watch.start()
            world = World(0, self.size)
            with process_group(world, store, self.config.trainer.accelerator, watch.look, tidy=False):
                yield world
        except UserError:
            raise
        except Exception as error:
            # Most likely the connection to a rank that is gone: what counts is why it is.
            watch.ended.wait(GRACE_SECONDS)
            raise (watch.reason() or error) from error
        finally:
            watch.stop()
            pool.stop(grace=0.0)  # they have nothing to give back
            abandon_group()  # now that nobody is left to wait for

    def _stuck(self, reason: Exception) -> None:
        """End this process, which waits for a rank that is gone and cannot be interrupted."""
        if not isinstance(reason, RankDiedError):
            self.folder.fail(
                f"{type(reason).__name__}: {reason}", "".join(traceback.format_exception(reason))
            )
        print(f"Run {self.folder.id} ends: {reason}", file=sys.stderr, flush=True)
        os._exit(1)


class _Watch(threading.Thread):
    """Waits for ranks to end before their time."""

    def __init__(self, pool: Pool, stuck: Callable[[Exception], None]) -> None:
        super().__init__(daemon=True, name="ranks")
        self.pool = pool
        self.stuck = stuck
        self.ended = threading.Event()
        self.first: Ended | None = None
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set() and not self.ended.is_set():
            for ended in self.pool.wait(0.2):
                if (ended.error or ended.died) and self.first is None:
                    self.first = ended
                    self.ended.set()
        reason = self.reason()
        if reason is not None and not self._done.wait(STUCK_SECONDS):
            self.stuck(reason)

    def reason(self) -> Exception | None:
        """Why the first rank that ended did; None when all are there."""
        if self.first is None:
            return None
        if isinstance(self.first.error, Exception):
            return self.first.error
        death = self.first.died or "SIGTERM"
        return RankDiedError(
            f"The process of {self.first.key} died by {death}; "
            "the same command goes on from the last checkpoint."
        )

    def look(self) -> None:
        """Raise when a rank has ended."""
        reason = self.reason()
        if reason is not None:
            raise reason

    def stop(self) -> None:
        """Leave the pool alone from now on."""
        self._done.set()
        if self.is_alive():
            self.join()


def _take_part(config: RunConfig, folder: Path, world: "World", port: int) -> None:
    """What the process of another rank does."""
    from lmsweep.training.run import prepare_run, take_part
    from lmsweep.training.world import process_group, reach_store

    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    try:
        job = prepare_run(config)
        with process_group(world, reach_store(HERE, port), config.trainer.accelerator):
            take_part(job, folder, world)
    except Exception as error:
        error.add_note(f"On rank {world.rank}:\n{traceback.format_exc()}")
        raise


def _end_with_rank_0() -> None:
    rank_0 = multiprocessing.parent_process()
    if rank_0 is not None:
        rank_0.join()
        time.sleep(GRACE_SECONDS)
        os._exit(1)  # a collective call would hold it for long
