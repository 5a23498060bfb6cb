"""Methods over two processes train what one process trains: penalties, attacks, constraints, other losses."""

from pathlib import Path

import pytest
import torch

from tests.sweep.sweeping import sweep
from tests.training.test_ddp import DDP

# A residual network with batch norm, so that statistics, second derivatives and sums are shared out, too.
SHORT = (
    "scale=cifar/smoke",
    "trainer.accelerator=cpu",
    "trainer.precision=64-true",
    "trainer.max_steps=5",
    "trainer.val_every=5",
    "trainer.batch_size=16",
    "data.label_noise=0.2",
    "adversarial.steps=2",
    "seed=0",
    "hydra.launcher.jobs=1",
)
METHODS = "method=gce,jacobian,parseval,trades"


def weights(outputs: Path) -> dict[str, torch.Tensor]:
    """The last weights of every run, by its id, as one vector."""
    return {
        path.parent.name: torch.cat(
            [value.double().flatten() for value in torch.load(path, weights_only=True)["state_dict"].values()]
        )
        for path in (outputs / "runs").glob("*/last.ckpt")
    }


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    for folder, more in (("one", ()), ("two", DDP)):
        done = sweep(tmp_path / folder, METHODS, *SHORT, *more)
        assert done.returncode == 0, done.stderr
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    assert len(one) == 4
    # Halves of a batch are summed in another order: some 1e4 additions with a relative error of 1e-16 each in
    # every step, which five steps at a rate of 0.003 do not enlarge. Other random numbers give 1e-4 and more.
    for run, vector in one.items():
        torch.testing.assert_close(two[run], vector, rtol=0, atol=1e-11)
    first, *others = (vector[:1000] for vector in one.values())
    assert all((vector - first).abs().max() > 1e-6 for vector in others), "each method has its own loss"
