"""Copies from the host to a device that nobody waits for."""

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy what was made on the CPU to `device`, in its queue of work.

    A copy to a GPU from ordinary memory stops the host until all that was queued before is done; from pinned
    memory it does not, and torch keeps that memory until the copy has happened.
    """
    pinned = values.pin_memory() if device.type == "cuda" else values
    return pinned.to(device, non_blocking=True)
