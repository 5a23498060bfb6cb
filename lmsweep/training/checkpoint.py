"""What a run writes while it trains: metrics.jsonl, and a checkpoint to go on from; then, its weights."""

import io
import json
import math
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from lmsweep.config.run import RunConfig
from lmsweep.errors import PausedError
from lmsweep.files import DamagedError, Lease, digest, replacing, write_atomically

FINISHED = "lmsweep_finished"
# Which validation accuracy says that weights are the best so far. Clean labels are a yardstick that nobody
# with noisy ones has: what they would choose is recorded, and not kept as a file.
CHOSEN_BY = {"best": "val_accuracy", "best_clean": "val_clean_accuracy"}
METRICS = "lmsweep_metrics"  # size and checksum of metrics.jsonl when the checkpoint was made


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint without running any code it may contain; None when there is none.

    Torch does not look at the checksums in its archives; a weight that changed on the disk is noticed here.
    """
    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        checkpoint = None if broken else torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged archive, or a damaged pickle in it
        raise DamagedError(path, error) from None
    if not isinstance(checkpoint, dict):
        raise DamagedError(path, f"{broken or 'it'} is not what was written")
    return checkpoint


def load_or_set_aside(
    path: Path, lease: Lease = nullcontext, metrics: Path | None = None
) -> dict[str, Any] | None:
    """Read a checkpoint; a damaged one is renamed, and training, which starts again, gives the same.

    A checkpoint also counts as damaged when lines have changed that `metrics` had when it was made.
    """
    try:
        checkpoint = load_checkpoint(path)
        if checkpoint and metrics and METRICS in checkpoint:
            size, told = checkpoint[METRICS]
            if not metrics.exists() or digest(metrics.read_bytes()[:size]) != told:
                raise DamagedError(metrics, "its first lines are not those of the checkpoint")
        return checkpoint
    except DamagedError as error:
        with lease():
            path.replace(path.with_name(f"{path.name}.damaged"))
        print(f"{error} It was set aside.", file=sys.stderr, flush=True)
        return None


class Chosen(NamedTuple):
    """The best weights so far, by one of CHOSEN_BY."""

    correct: int
    step: int
    weights: dict[str, Tensor]


@dataclass(eq=False)
class RunCheckpoint(pl.Callback):
    """After each validation: remember the best weights, then save everything in one atomic step."""

    path: Path
    val_size: int
    lease: Lease = nullcontext  # held while the file is replaced
    seconds: Callable[[], float] = lambda: 0.0  # how long the run has trained in all
    beside: Mapping[str, Any] = field(default_factory=dict)  # saved too, under its own keys
    pause_at: int | None = None  # the first checkpoint from this step on pauses
    seen_step: int = 0
    chosen: dict[str, Chosen] = field(default_factory=dict)
    _rng_state: dict[str, Any] | None = None
    _stopped: bool = False

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
            with replacing(self.path, self.lease) as temporary:
                trainer.save_checkpoint(temporary)
        else:
            trainer.save_checkpoint(self.path)  # takes part in collecting what is saved; only rank 0 writes
        # Training has not changed anything since, so that going on is the same as never having paused.
        step, ends = trainer.global_step, trainer.should_stop or trainer.global_step == trainer.max_steps
        if self.pause_at is not None and step >= self.pause_at and not ends:
            raise PausedError(f"The run waits after step {step}.")

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
        checkpoint["stopped"] = trainer.should_stop
        checkpoint |= {**_metrics_beside(self.path), **self.beside}
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
        self._stopped = checkpoint.get("stopped", False)
        states = [checkpoint["rng_state"], *checkpoint.get("rng_states_of_others", ())]
        # A run that goes on with more processes than it had: the new ones draw from their own seeds.
        self._rng_state = states[trainer.global_rank] if trainer.global_rank < len(states) else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on drawing where the interrupted run stopped; stay at the end if a callback had ended it."""
        trainer.should_stop = trainer.should_stop or self._stopped
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


def save_finished(
    path: Path,
    weights: Mapping[str, Tensor],
    summary: dict[str, Any],
    seconds: float,
    lease: Lease = nullcontext,
) -> None:
    """Write weights that training is done with; `summary` is what was measured of them."""
    # Through memory, because torch hides the reason when it cannot write to a path, such as a full disk.
    buffer = io.BytesIO()
    kept = {"state_dict": dict(weights), FINISHED: summary, "seconds": seconds}
    torch.save({**kept, **_metrics_beside(path)}, buffer)
    write_atomically(path, buffer.getvalue(), lease)


def _metrics_beside(path: Path) -> dict[str, Any]:
    metrics = path.with_name("metrics.jsonl")
    lines = metrics.read_bytes() if metrics.exists() else b""
    return {METRICS: [len(lines), digest(lines)]}


Mirror = Callable[[Mapping[str, float], int], None]  # is told the values of a line, and after which step


def replay(path: Path, mirror: Mirror, until: float = math.inf, size: int | None = None) -> list[str]:
    """Tell a mirror all lines up to a step, of the first `size` bytes, as they were written; return them."""
    lines: list[str] = []
    data = path.read_bytes()[:size] if path.exists() else b""
    for line in data.decode(errors="replace").splitlines():
        try:
            values = json.loads(line)
            step = values.pop("step")
        except (ValueError, LookupError, AttributeError):  # the line that the process died in
            break
        if step <= until:
            lines.append(line)
            mirror(values, step)
    return lines


class JsonLinesLogger(Logger):
    """One line of JSON per call; lines after the step that training resumes from are dropped first.

    A `mirror` is told every line: those that are kept, and then each one that has been written. `before` is
    how many steps earlier trainings of the run took.

    The file is made anew while `lease` is held, and stays open: should another process take the run over, it
    makes a new file in turn, and what this process still writes goes into one that nobody sees.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        checkpoint: Mapping[str, Any] | None,
        lease: Lease = nullcontext,
        mirror: Mirror = lambda _values, _step: None,
        before: int = 0,
    ) -> None:
        """Open metrics.jsonl where `checkpoint` left it."""
        super().__init__()
        self.max_steps = config.trainer.max_steps
        self.mirror = mirror
        self.before = before
        path, step = folder / "metrics.jsonl", before + (checkpoint["global_step"] if checkpoint else 0)
        size, _ = checkpoint[METRICS] if checkpoint and METRICS in checkpoint else (None, None)
        kept = replay(path, mirror, step, size) if step else []
        with replacing(path, lease) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in kept))
            self.file = temporary.open("a", buffering=1)  # a line at a time

    @property
    def name(self) -> str:
        """The logger's name."""
        return "jsonl"

    @property
    def version(self) -> str:
        """There is only one."""
        return "1"

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The configuration has a file of its own."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one line that says how many steps were taken.

        Lightning counts them from 0 here, except in the validation after the last one.
        """
        values = {k: float(v) for k, v in metrics.items() if k != "epoch"}
        steps = self.before + min((step or 0) + 1, self.max_steps)
        self.file.write(json.dumps({"step": steps, **values}) + "\n")
        self.mirror(values, steps)
