"""While a run trains, one file with all that is needed to go on; then, its best and its last weights."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from lmsweep.files import replacing, write_atomically

FINISHED = "lmsweep_finished"
# Which validation accuracy says that weights are the best so far. Clean labels are a yardstick that nobody
# with noisy ones has: what they would choose is recorded, and not kept as a file.
CHOSEN_BY = {"best": "val_accuracy", "best_clean": "val_clean_accuracy"}


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint without running any code it may contain; None when there is none."""
    if not path.exists():
        return None
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return checkpoint


class Chosen(NamedTuple):
    """The best weights so far, by one of CHOSEN_BY."""

    correct: int
    step: int
    weights: dict[str, Tensor]


class RunCheckpoint(pl.Callback):
    """After each validation: remember the best weights, then save everything in one atomic step.

    `check_lease` is called before the file is replaced; `seconds` says how long the run has trained in all.
    """

    def __init__(
        self,
        path: Path,
        val_size: int,
        check_lease: Callable[[], object] = lambda: None,
        seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.path = path
        self.check_lease = check_lease
        self.seconds = seconds
        self.val_size = val_size
        self.seen_step = 0
        self.chosen: dict[str, Chosen] = {}
        self._rng_state: dict[str, Any] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare, then save."""
        # Whole numbers, because averages of equal counts may differ in the last bit.
        correct = {
            name: round(float(trainer.callback_metrics[metric]) * self.val_size)
            for name, metric in CHOSEN_BY.items()
            if metric in trainer.callback_metrics
        }
        self.consider(pl_module, correct, trainer.global_step)
        if trainer.state.fn != TrainerFn.FITTING:
            return  # the validation after the last step: what it saves is the finished checkpoint
        if trainer.is_global_zero:
            with replacing(self.path) as temporary:
                trainer.save_checkpoint(temporary)
                self.check_lease()
        else:
            trainer.save_checkpoint(self.path)  # takes part in collecting what is saved; only rank 0 writes

    def consider(self, module: pl.LightningModule, correct: Mapping[str, int], step: int) -> None:
        """Keep these weights where they are better than the best so far; the earlier of two equals stays."""
        self.seen_step = step
        better = [n for n, count in correct.items() if n not in self.chosen or count > self.chosen[n].correct]
        if better:
            weights = {k: v.detach().clone() for k, v in module.state_dict().items()}
            self.chosen |= {name: Chosen(correct[name], step, weights) for name in better}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Dropout draws from torch's generators, so their state belongs to the run: that of every process."""
        checkpoint["seconds"] = self.seconds()
        mine = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
        states: list[Any] = [mine] * trainer.world_size
        if trainer.world_size > 1:
            dist.all_gather_object(states, mine)
        checkpoint["rng_state"] = states[0]
        if len(states) > 1:
            checkpoint["rng_states_of_others"] = states[1:]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the generator's state until everything that draws before training has drawn."""
        states = [checkpoint["rng_state"], *checkpoint.get("rng_states_of_others", ())]
        # A run that goes on with more processes than it had: the new ones draw from their own seeds.
        self._rng_state = states[trainer.global_rank] if trainer.global_rank < len(states) else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on drawing where the interrupted run stopped."""
        if self._rng_state is not None:
            torch.set_rng_state(self._rng_state["cpu"])
            if len(self._rng_state["cuda"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(self._rng_state["cuda"])

    def state_dict(self) -> dict[str, Any]:
        """The best weights travel with the checkpoint, and where it was made: not to validate there again."""
        chosen = {name: best._asdict() for name, best in self.chosen.items()}
        return {"chosen": chosen, "seen_step": self.seen_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the best weights of an interrupted run."""
        self.seen_step = state_dict["seen_step"]
        self.chosen = {name: Chosen(**best) for name, best in state_dict["chosen"].items()}


def save_finished(path: Path, weights: Mapping[str, Tensor], summary: dict[str, Any], seconds: float) -> None:
    """Write weights that training is done with; `summary` is what was measured of them."""
    # Through memory, because torch hides the reason when it cannot write to a path, such as a full disk.
    buffer = io.BytesIO()
    torch.save({"state_dict": dict(weights), FINISHED: summary, "seconds": seconds}, buffer)
    write_atomically(path, buffer.getvalue())
