"""The other processes of a run over several devices: started here, or found as the tasks of a Slurm step.

Rank 0 takes the lease, writes and speaks; the others take part in the training and leave no trace. When one
of them dies the run ends at once: with the error that it raised, or given back when it was killed.

By hand, and not by a library, because of these: Lightning's launcher and torch's elastic one start ranks from
a command line and start all of them anew, while here each is made from the run's frozen configuration and
rank 0 has the lease already. Lightning's SLURMEnvironment counts the tasks of the job instead of those of the
step and gives all runs of a job the same port; what it works out well, the first node's address, is taken
from it.
"""

import hashlib
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError, GivenBackError, UserError
from lmsweep.processes import Ended, Pool

if TYPE_CHECKING:  # commands read this file, and start faster without torch
    from torch.distributed import TCPStore

    from lmsweep.store.folder import JobFolder
    from lmsweep.training.run import Parts
    from lmsweep.training.world import World

HERE = "127.0.0.1"
# For rank 0 to notice by itself that another rank is gone, and for a rank to hear why rank 0 stopped.
GRACE_SECONDS = 15.0
# After so long rank 0 is stuck in a call that nothing but the end of its process ends.
STUCK_SECONDS = 30.0
# For the other tasks of a Slurm step to hear how the run ended.
LEAVE_SECONDS = 20.0


class RankDiedError(GivenBackError):
    """A process of the run was killed; the run is given back and goes on from its last checkpoint."""


@contextmanager
def local_ranks(config: RunConfig, folder: "JobFolder") -> "Iterator[World]":
    """Start the other processes of a run on this machine, and end them whatever happens."""

    def end_this_process(reason: Exception) -> None:
        if not isinstance(reason, RankDiedError):
            folder.fail(f"{type(reason).__name__}: {reason}", "".join(traceback.format_exception(reason)))
        print(f"Run {folder.id} ends: {reason}", file=sys.stderr, flush=True)
        os._exit(1)

    first = FirstTask(config, Task(0, 0, HERE, 0))
    pool = Pool([{}] * len(first.others), preload=("lmsweep.training.preload",))
    watch = _Watch(pool, end_this_process)
    try:
        for rank in first.others:
            task = Task(rank, rank, HERE, first.store.port)
            pool.start(f"rank {rank}", partial(_local_rank, config, task, folder.path))
        watch.start()
        with first.ranks(watch.look) as world:
            yield world
    finally:
        watch.stop()
        pool.stop(grace=0.0)  # the other ranks have nothing to give back


class _Watch(threading.Thread):
    """Waits for ranks to end before their time, and calls `stuck` when rank 0 does not notice it."""

    def __init__(self, pool: Pool, stuck: Callable[[Exception], None]) -> None:
        super().__init__(daemon=True, name="ranks")
        self.pool = pool
        self.stuck = stuck
        self.reason: Exception | None = None  # why the first rank that ended did
        self._done = threading.Event()

    def run(self) -> None:
        while self.reason is None and not self._done.is_set():
            for ended in self.pool.wait(0.2):
                if self.reason is None and (ended.error or ended.died):
                    self.reason = _reason(ended)
        if self.reason is not None and not self._done.wait(STUCK_SECONDS):
            self.stuck(self.reason)

    def look(self) -> None:
        """Raise when a rank has ended."""
        if self.reason is not None:
            raise self.reason

    def stop(self) -> None:
        """Leave the pool alone from now on."""
        self._done.set()
        if self.is_alive():
            self.join()


def _reason(ended: Ended) -> Exception:
    if isinstance(ended.error, Exception):
        return ended.error
    death = ended.died or "SIGTERM"
    return RankDiedError(
        f"The process of {ended.key} died by {death}; the same command goes on from the last checkpoint."
    )


def _local_rank(config: RunConfig, task: "Task", folder: Path) -> None:
    """What the process of another rank does."""
    from lmsweep.training.run import prepare_run

    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    follow(config, task, folder, partial(prepare_run, config))


def _end_with_rank_0() -> None:
    rank_0 = multiprocessing.parent_process()
    if rank_0 is not None:
        rank_0.join()
        time.sleep(GRACE_SECONDS)
        os._exit(1)  # a collective call would hold it for long


@dataclass(frozen=True)
class Task:
    """A process of a run, and where it meets the others.

    Under Slurm these are the tasks of `srun --nodes=NUM_NODES --ntasks-per-node=DEVICES`, which are all given
    the same configuration. Rank 0 takes the lease, trains and records; the others meet rank 0 at an address
    that all can work out, wait for its word, take part, and return its results.
    """

    rank: int
    local_rank: int
    address: str
    port: int


def task_of(config: RunConfig, run_id: str, environment: Mapping[str, str] = os.environ) -> Task | None:
    """Which task of a Slurm step this is; None when the run's processes are to be started here.

    ConfigError when the step's tasks are not those that the run needs, or nodes are asked for without Slurm.
    """
    trainer = config.trainer
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", 1))  # set by srun, and not by sbatch alone
    if trainer.processes == 1 or (tasks == 1 and trainer.num_nodes == 1):
        return None
    if tasks != trainer.processes:
        raise ConfigError(
            f"trainer.devices={trainer.devices} with trainer.num_nodes={trainer.num_nodes} needs "
            f"{trainer.processes} tasks of one Slurm step, and there "
            f"{'is' if tasks == 1 else 'are'} {tasks}; start it with srun --nodes={trainer.num_nodes} "
            f"--ntasks-per-node={trainer.processes_per_node}."
        )
    # Other jobs on the node, earlier attempts of this job and its other runs must not meet here.
    place = f"{environment.get('SLURM_JOB_ID')}/{environment.get('SLURM_RESTART_COUNT', 0)}/{run_id}"
    port = 15000 + int(hashlib.sha256(place.encode()).hexdigest(), 16) % 10000
    return Task(
        int(environment["SLURM_PROCID"]),
        int(environment["SLURM_LOCALID"]),
        _address(trainer.num_nodes, environment),
        int(environment.get("MASTER_PORT", port)),
    )


def _address(num_nodes: int, environment: Mapping[str, str]) -> str:
    """Where task 0 runs: on the first node of the step."""
    if num_nodes == 1:
        return HERE
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    from pytorch_lightning.plugins.environments import SLURMEnvironment

    nodes = environment.get("SLURM_STEP_NODELIST") or environment["SLURM_NODELIST"]
    name = SLURMEnvironment.resolve_root_node_address(nodes)
    try:
        socket.getaddrinfo(name, None)
    except OSError:  # a name that only Slurm knows; the first node is where the job was launched, too
        return environment.get("SLURM_LAUNCH_NODE_IPADDR", name)
    return name


class FirstTask:
    """Rank 0: opens the meeting point, calls the others, and says at the end how the run ended."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        from lmsweep.training.world import open_store

        self.config, self.task, self.others = config, task, range(1, config.trainer.processes)
        self.store: TCPStore = open_store(task.address, task.port)

    @contextmanager
    def ranks(self, look: Callable[[], object] | None = None) -> "Iterator[World]":
        """Call the other ranks to train. `look` raises what one of them failed with."""
        from lmsweep.training.world import World, process_group

        watched, look = look is not None, look or self._look
        world = World(0, self.config.trainer.processes, self.task.local_rank)
        self.store.set("train", "")
        try:
            with process_group(world, self.store, self.config.trainer.accelerator, look):
                yield world
        except UserError:
            raise
        except Exception as error:
            if not _lost_connection(error):
                raise
            # A rank of this machine that lost its connection ends after LEAVE_SECONDS, and is seen to end.
            deadline = time.monotonic() + (LEAVE_SECONDS + GRACE_SECONDS if watched else GRACE_SECONDS)
            while time.monotonic() < deadline:
                look()  # what counts is why the other rank is gone
                time.sleep(0.1)
            if watched:
                raise  # every process lives, so that the error is rank 0's own
            raise RankDiedError(
                "A process of the run died; the same command goes on from the last checkpoint."
            ) from error

    def _look(self) -> None:
        """Raise what another task says it failed with."""
        for rank in self.others:
            if self.store.check([f"failed/{rank}"]):
                reason = self.store.get(f"failed/{rank}").decode()
                raise RuntimeError(f"rank {rank} failed with {reason}")

    def end(self, results: Mapping[str, Any] | None, error: str = "", *, wait: bool = True) -> None:
        """Tell the other tasks how the run ended, and wait until they know."""
        from lmsweep.training.world import wait_for

        self.store.set("end", json.dumps({"results": results, "error": error}))
        if wait:
            wait_for(self.store, [f"left/{rank}" for rank in self.others], LEAVE_SECONDS)


@contextmanager
def first_task(config: RunConfig, task: Task | None) -> Iterator[FirstTask | None]:
    """Task 0 of a Slurm step, which tells the others when it fails; None without one."""
    if task is None:
        yield None
        return
    first = FirstTask(config, task)
    try:
        yield first
    except BaseException as error:
        # A signal reaches all tasks, so that nobody needs to hear of it.
        first.end(None, str(error) or type(error).__name__, wait=isinstance(error, Exception))
        raise


def follow(config: RunConfig, task: Task, folder: Path, prepare: "Callable[[], Parts]") -> dict[str, Any]:
    """What the other ranks do: their share when rank 0 calls, and nothing else. Returns task 0's results."""
    from lmsweep.training.run import take_part
    from lmsweep.training.world import World, process_group, reach_store, wait_for

    store = reach_store(task.address, task.port)
    try:
        while not (called := store.check(["train"])) and not store.check(["end"]):
            time.sleep(0.05)
        if called:
            job = prepare()
            world = World(task.rank, config.trainer.processes, task.local_rank)
            with process_group(world, store, config.trainer.accelerator):
                take_part(job, folder, world)
        wait_for(store, ["end"])  # task 0 evaluates, for as long as that takes
    except Exception as error:
        error.add_note(f"On rank {task.rank}:\n{traceback.format_exc()}")
        if not _lost_connection(error):
            store.set(f"failed/{task.rank}", f"{type(error).__name__}: {error}")
            raise
        if not wait_for(store, ["end"], LEAVE_SECONDS):  # task 0 has lost its connection, too, and says why
            raise
    end = json.loads(store.get("end"))
    store.set(f"left/{task.rank}", "")
    if end["error"]:
        raise UserError(f"Rank 0 ended: {end['error']}")
    return end["results"] or {}


def _lost_connection(error: BaseException) -> bool:
    words = str(error).lower()
    return any(word in words for word in ("connection", "gloo", "nccl", "peer"))
