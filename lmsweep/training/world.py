"""The processes that train one run together: who this one is, how they meet, and what Lightning is told.

`lmsweep.training.ranks` starts the processes, because Lightning would replay the command line, which is wrong
inside a sweep, and would take over signals under Slurm. The processes meet at a key-value store that rank 0
opens; Lightning finds a process group that is ready and starts nothing.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.plugins.environments import LightningEnvironment

from lmsweep.seeds import Share

JOIN_SECONDS = 600.0  # for all processes of a run to be there
STEP_SECONDS = 1800.0  # for the slowest step: rank 0 measures distances while the others wait


@dataclass(frozen=True)
class World:
    """This process among those of a run; rank 0 writes and speaks, the others only take part."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those of its node

    @property
    def share(self) -> Share:
        """The part of every batch that is this process's."""
        return Share(self.rank, self.size)

    def device(self, accelerator: str) -> list[int] | int:
        """Lightning's `devices`: this process's own. Some clusters show each process just one, number 0."""
        if self.size == 1 or accelerator == "cpu" or not torch.cuda.is_available():
            return 1
        return [self.local_rank if torch.cuda.device_count() > self.local_rank else 0]


ALONE = World()


# How a run comes by its other processes when it starts to train: inside, all of them are there.
Company = Callable[[], AbstractContextManager[World]]


def alone() -> AbstractContextManager[World]:
    """A run of one process."""
    return nullcontext(ALONE)


class Environment(LightningEnvironment):
    """What Lightning asks about the other processes: who they are is known, and nothing is to be started.

    Each process tells Lightning of its own device only, so Lightning must not count processes by devices.
    """

    creates_processes_externally = True

    def __init__(self, world: World) -> None:
        super().__init__()
        super().set_global_rank(world.rank)
        super().set_world_size(world.size)

    def set_global_rank(self, rank: int) -> None:
        """Known already."""

    def set_world_size(self, size: int) -> None:
        """Known already."""

    def local_rank(self) -> int:
        """The first, and only one, of its own devices."""
        return 0


def open_store(address: str, port: int = 0) -> dist.TCPStore:
    """Rank 0's side of the meeting point; port 0 takes any that is free (`store.port`)."""
    return dist.TCPStore(
        address, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=STEP_SECONDS)
    )


def reach_store(address: str, port: int) -> dist.TCPStore:
    """The others' side; waits for rank 0 to open it."""
    store = dist.TCPStore(
        address, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=JOIN_SECONDS)
    )
    store.set_timeout(timedelta(seconds=STEP_SECONDS))
    return store


def wait_for(
    store: dist.Store, keys: list[str], seconds: float = math.inf, look: Callable[[], object] = lambda: None
) -> bool:
    """Wait until all of the keys are in the store, for so many seconds; `look` is called meanwhile.

    False when the time was over first.
    """
    deadline = time.monotonic() + seconds
    while not store.check(keys):
        look()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def process_group(
    world: World,
    store: dist.Store,
    accelerator: str,
    look: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Inside, the process group exists. Rank 0 waits for the others, and calls `look` while it does.

    After an error the group is closed, which tells the others.
    """
    store.set(f"ready/{world.rank}", "")
    everybody = [f"ready/{rank}" for rank in range(world.size)]
    if world.rank == 0 and not wait_for(store, everybody, JOIN_SECONDS, look):
        raise TimeoutError(f"not all {world.size} processes of the run came within {JOIN_SECONDS:.0f} s")
    options: dict[str, Any] = {"backend": "gloo"}
    if accelerator != "cpu" and torch.cuda.is_available():
        (index,) = world.device(accelerator)  # type: ignore[misc]
        options = {"backend": "nccl", "device_id": torch.device("cuda", index)}
    dist.init_process_group(
        **options,
        store=store,
        rank=world.rank,
        world_size=world.size,
        timeout=timedelta(seconds=STEP_SECONDS),
    )
    try:
        yield
    except BaseException:
        # NCCL would wait for processes that may be gone, and ends with this one.
        if dist.get_backend() == "gloo":
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()
