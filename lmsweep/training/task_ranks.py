"""The processes of a run as the tasks of one Slurm step: `srun --ntasks-per-node=DEVICES --nodes=NUM_NODES`.

All tasks are given the same configuration. Task 0 takes the lease, trains and records; the others meet task 0
at an address that all can work out, wait for its word, take part, and return the results that it sends them.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError, UserError
from lmsweep.training.ranks import GRACE_SECONDS, RankDiedError

if TYPE_CHECKING:
    from torch.distributed import TCPStore

    from lmsweep.training.run import Parts
    from lmsweep.training.world import World

LEAVE_SECONDS = 20.0  # for the other tasks to hear how the run ended


@dataclass(frozen=True)
class Task:
    """This process among the tasks of its step."""

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
            f"--ntasks-per-node={trainer.devices}."
        )
    # Other jobs on the node, an earlier life of this one and its other runs must not meet here.
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
        return "127.0.0.1"
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
    """Task 0: opens the meeting point, and says at the end how the run ended."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        from lmsweep.training.world import open_store

        self.config = config
        self.task = task
        self.size = config.trainer.processes
        self.store: TCPStore = open_store(task.address, task.port)

    @contextmanager
    def joined(self) -> "Iterator[World]":
        """Call the others to train."""
        from lmsweep.training.world import World, process_group

        world = World(0, self.size, self.task.local_rank)
        self.store.set("train", "")
        try:
            with process_group(world, self.store, self.config.trainer.accelerator, self._look):
                yield world
        except UserError:
            raise
        except Exception as error:
            deadline = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < deadline and _lost_connection(error):
                self._look(error)
                time.sleep(0.1)
            if _lost_connection(error):
                raise RankDiedError(
                    "A process of the run died; the same command goes on from the last checkpoint."
                ) from error
            raise

    def _look(self, cause: Exception | None = None) -> None:
        """Raise what another task says it failed with."""
        for rank in range(1, self.size):
            if self.store.check([f"failed/{rank}"]):
                reason = self.store.get(f"failed/{rank}").decode()
                raise RuntimeError(f"rank {rank} failed with {reason}") from cause

    def end(self, results: Mapping[str, Any] | None, error: str = "", *, wait: bool = True) -> None:
        """Tell the others, and wait until they know."""
        self.store.set("end", json.dumps({"results": results, "error": error}))
        if not wait:
            return
        heard = [f"left/{rank}" for rank in range(1, self.size)]
        deadline = time.monotonic() + LEAVE_SECONDS
        while not self.store.check(heard) and time.monotonic() < deadline:
            time.sleep(0.05)


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


def _lost_connection(error: BaseException) -> bool:
    words = str(error).lower()
    return any(word in words for word in ("connection", "gloo", "nccl", "peer"))


def follow(config: RunConfig, task: Task, folder: Path, prepare: "Callable[[], Parts]") -> dict[str, Any]:
    """What the other tasks do: their share when task 0 calls, and nothing else. Returns its results."""
    from lmsweep.training.run import take_part
    from lmsweep.training.world import World, process_group, reach_store

    store = reach_store(task.address, task.port)
    try:
        while not (called := store.check(["train"])) and not store.check(["end"]):
            time.sleep(0.05)
        if called:
            job = prepare()
            world = World(task.rank, config.trainer.processes, task.local_rank)
            with process_group(world, store, config.trainer.accelerator):
                take_part(job, folder, world)
        while not store.check(["end"]):  # task 0 evaluates, for as long as that takes
            time.sleep(0.1)
        end = json.loads(store.get("end"))
    except Exception as error:
        end = _told(store, task.rank, error)
    store.set(f"left/{task.rank}", "")
    if end["error"]:
        raise UserError(f"Rank 0 ended: {end['error']}")
    results: dict[str, Any] = end["results"] or {}
    return results


def _told(store: "TCPStore", rank: int, error: Exception) -> dict[str, Any]:
    """Say what went wrong here, unless it is that task 0 has ended; return what that says of the end."""
    if not _lost_connection(error):
        store.set(f"failed/{rank}", f"{type(error).__name__}: {error}")
        raise error
    deadline = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < deadline:
        if store.check(["end"]):
            told: dict[str, Any] = json.loads(store.get("end"))
            return told
        time.sleep(0.1)
    raise error
