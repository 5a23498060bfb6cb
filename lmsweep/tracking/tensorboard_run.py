"""A run as TensorBoard's event files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lmsweep.config.groups import TrackingConfig
from lmsweep.config.identity import dotted
from lmsweep.figures.pages.markdown import table
from lmsweep.tracking.tracker import Card, Line, Look, Rows, Tracker


class TensorBoardRun(Tracker):
    """The event file of one run, in a folder by its id; the newest file holds the whole run."""

    def __init__(self, card: Card, options: TrackingConfig, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.card = card
        mine = folder / f"{card.job_type}-{card.id}"
        for old in mine.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = SummaryWriter(str(mine))
        about = {"name": card.name, "group": card.group, "tags": list(card.tags)}
        text = yaml.safe_dump({**about, "config": dict(card.config)}, sort_keys=False)
        self.writer.add_text("config", f"```\n{text}\n```")

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def describe(self, results: Mapping[str, Any], portrait: Look, checkpoint: Path) -> None:
        metrics = {f"results/{key}": value for key, value in results["metrics"].items()}
        # Values that TensorBoard has columns for, under dotted keys.
        keys: dict[str, bool | int | float | str] = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in dotted(self.card.config).items()
        }
        self.writer.add_hparams(keys, metrics, run_name=".")
        seen = portrait()
        if seen is None:
            return
        share = seen.confusion / seen.confusion.sum(1, keepdim=True).clamp(min=1)
        self.writer.add_image("confusion", share.unsqueeze(0))
        for number, example in enumerate(seen.examples):
            self.writer.add_image(f"adversarial_examples/{number}", example.picture)
            self.writer.add_text(f"adversarial_examples/{number}", example.caption)

    def table(self, name: str, columns: Sequence[str], rows: Rows, line: Line | None = None) -> None:
        self.writer.add_text(name, table(columns, [list(map(str, row)) for row in rows]))

    def picture(self, name: str, file: Path) -> None:
        from torchvision.io import decode_image

        self.writer.add_image(name, decode_image(str(file)))

    def close(self, exit_code: int, *, given_back: bool = False) -> None:
        self.writer.add_text("exit_code", str(exit_code))
        self.writer.close()
