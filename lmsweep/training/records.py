"""What is written and shown while a run trains."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from html import escape
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lmsweep.errors import FinalError
from lmsweep.files import Lease, replacing

Mirror = Callable[[Mapping[str, float], int], None]  # is told the values of a line, and after which step


def no_mirror(_values: Mapping[str, float], _step: int) -> None:
    """Tell nobody."""


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
        path: Path,
        max_steps: int,
        resume_step: int = 0,
        mirror: Mirror = no_mirror,
        lease: Lease = nullcontext,
        size: int | None = None,
    ) -> None:
        """`size` is how many bytes the file had when the checkpoint was made."""
        super().__init__()
        self.max_steps = max_steps
        self.mirror = mirror
        self.before = 0
        kept = replay(path, mirror, resume_step, size) if resume_step else []
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


# Steps between looks at the loss: fixed, so that how often metrics are written cannot decide over a failure.
CHECK_EVERY = 10


class DivergedError(FinalError):
    """The loss is not a number any more."""


class LossRecord(pl.Callback):
    """Record the total loss and the learning rate every few steps, and fail when the loss is not finite."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the loss that Lightning kept; not at every step, because reading it waits for the GPU."""
        step = trainer.global_step
        last = step == trainer.max_steps
        if not last and step % CHECK_EVERY and step % self.every:
            return
        loss = float(trainer.strategy.reduce(outputs["loss"], reduce_op="mean"))  # over all processes
        if not math.isfinite(loss):
            raise DivergedError(f"the loss was {loss} at step {step}: training diverged")
        values = {"train_loss": loss, "learning_rate": trainer.optimizers[0].param_groups[0]["lr"]}
        if step % self.every == 0:
            pl_module.log_dict(values)
        elif last:  # Lightning drops what is logged off its interval
            for logger in trainer.loggers:
                logger.log_metrics(values, step - 1)


class NotebookBar:
    """A bar below the cell of a notebook, drawn by the browser; rich's own would need ipywidgets."""

    def __init__(self, label: str, total: int) -> None:
        from IPython.display import HTML, display

        self.label, self.total, self.note, self.html = label, total, "", HTML
        self.shown = display(HTML(""), display_id=True)

    def update(self, _task: Any, completed: int, note: str | None = None) -> None:
        """Move the bar."""
        self.note = note or self.note
        told = escape(f"{self.label}: step {completed}/{self.total} {self.note}")
        bar = f"<progress value='{completed}' max='{self.total}'></progress>"
        self.shown.update(self.html(f"{bar} {told}"))

    def stop(self) -> None:
        """Leave the bar as it is."""


class RichProgress(pl.Callback):
    """A progress bar on a terminal and in a notebook, a line per validation elsewhere."""

    def __init__(self, label: str, every_seconds: float = 0.2) -> None:
        self.label = label
        self.every_seconds = every_seconds
        self.console = Console(file=sys.stderr)
        self.progress: Progress | NotebookBar | None = None
        self.task: Any = None
        self.drawn = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar at the step training starts from."""
        if not trainer.is_global_zero:
            return
        if self.console.is_jupyter:
            self.progress = NotebookBar(self.label, trainer.max_steps)
        elif self.console.is_terminal:
            self._open_bar(trainer)

    def _open_bar(self, trainer: pl.Trainer) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.progress.add_task(
            self.label, total=trainer.max_steps, completed=trainer.global_step, note=""
        )
        self.progress.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar a few times per second, not at every step."""
        now = time.monotonic()
        if self.progress is not None and now - self.drawn > self.every_seconds:
            self.drawn = now
            self.progress.update(self.task, completed=trainer.global_step)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the validation accuracy."""
        note = f"validation {float(trainer.callback_metrics['val_accuracy']):.1%}"
        if self.progress is not None:
            self.progress.update(self.task, completed=trainer.global_step, note=note)
        elif trainer.is_global_zero and not self.console.is_terminal:
            self.console.print(f"{self.label}: step {trainer.global_step}/{trainer.max_steps}, {note}")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Close the bar."""
        if self.progress is not None:
            self.progress.update(self.task, completed=trainer.global_step)
            self.progress.stop()
            self.progress = None

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar before an error is printed."""
        self.teardown(trainer, pl_module, "fit")
