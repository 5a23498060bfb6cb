"""One step of a network with batch norm, by one process or by two that share its batch."""

import socket
from functools import partial

import torch
import torch.nn.functional as F

from lmsweep.margin import MarginLoss
from lmsweep.margin.batch_norm import per_sample_batch_norm, sync_batch_norm
from lmsweep.margin.layers import capture
from lmsweep.models import WideResNet
from lmsweep.processes import call_each, value_of
from lmsweep.seeds import ALL
from lmsweep.training.world import World, open_store, process_group, reach_store

MODES = {"batch": {}, "exact": {"exact": True}, "per_sample": {"batch_norm": "per_sample"}}


def step(mode: str, share=ALL) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The margin loss, the gradient of the total loss and the running statistics after one step."""
    torch.manual_seed(0)
    net = WideResNet((3, 8, 8), 4, depth=10, width=1).double()
    x, y = share.of(torch.rand(8, 3, 8, 8).double()), share.of(torch.arange(8) % 4)
    callback = MarginLoss("everything", norm=2, gamma=1.0, clip=2.0, **MODES[mode])
    per_sample = callback.batch_norm == "per_sample"
    synced = partial(sync_batch_norm, per_sample=per_sample)
    alone = per_sample_batch_norm if per_sample else (lambda _: torch.enable_grad())
    names = callback._names = callback.check(net)
    with (synced if share.size > 1 else alone)(net), capture(net, names) as captured:
        loss = F.cross_entropy(net(x), y)
    margin = callback._loss(_Silent(net), captured, y)
    (loss + margin).backward()
    gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
    return margin.item(), gradient, torch.cat([b.double().flatten() for b in net.buffers()])


class _Silent:
    """A module whose trainer logs nothing."""

    def __init__(self, net):
        self.net, self.trainer = net, type("Trainer", (), {"loggers": []})()


def _rank(rank: int, port: int) -> dict:
    torch.set_num_threads(1)
    store = open_store("127.0.0.1", port) if rank == 0 else reach_store("127.0.0.1", port)
    world = World(rank, 2, rank)
    with process_group(world, store, "cpu"):
        return {mode: step(mode, world.share) for mode in MODES}


def both() -> list[dict]:
    """What the two processes computed in each mode."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tasks = {str(rank): partial(_rank, rank, port) for rank in range(2)}
    ends = call_each([{}, {}], tasks, preload=("lmsweep.training.preload",))
    return [value_of(end) for end in ends.values()]
