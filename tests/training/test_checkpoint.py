"""Which weights are kept, and what travels with a checkpoint."""

import torch
from torch import nn

from lmsweep.training.checkpoint import RunCheckpoint


def test_of_two_equal_validations_the_earlier_weights_stay(tmp_path):
    keeper = RunCheckpoint(tmp_path / "checkpoint.ckpt", val_size=297)
    module = nn.Linear(1, 1)
    for step, (correct, value) in enumerate([(100, 1.0), (163, 2.0), (163, 3.0), (90, 4.0)], 1):
        nn.init.constant_(module.weight, value)
        keeper.consider(module, {"best": correct}, step)
    best = keeper.chosen["best"]
    assert (best.step, best.weights["weight"].item(), keeper.seen_step) == (2, 2.0, 4)


def test_counts_survive_the_average_in_single_precision():
    """The callback turns Lightning's float32 average back into a count; this must never be off by one."""
    for size in (7, 297, 5000, 10_000):
        for correct in range(0, size + 1, max(1, size // 500)):
            average = torch.tensor(correct / size, dtype=torch.float32)
            assert round(float(average) * size) == correct


def test_the_best_weights_travel_with_the_checkpoint(tmp_path):
    keeper = RunCheckpoint(tmp_path / "checkpoint.ckpt", val_size=10)
    module = nn.Linear(1, 1)
    keeper.consider(module, {"best": 5, "best_clean": 7}, 3)
    keeper.consider(module, {"best": 6, "best_clean": 7}, 4)
    again = RunCheckpoint(tmp_path / "checkpoint.ckpt", val_size=10)
    again.load_state_dict(keeper.state_dict())
    assert {name: chosen[:2] for name, chosen in again.chosen.items()} == {
        "best": (6, 4),
        "best_clean": (7, 3),
    }
    assert torch.equal(again.chosen["best"].weights["weight"], module.weight)
