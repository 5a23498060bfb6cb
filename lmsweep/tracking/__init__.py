"""W&B beside a run, never in its way."""

from pathlib import Path
from typing import TYPE_CHECKING

from lmsweep.config import RunConfig

if TYPE_CHECKING:
    from pytorch_lightning.loggers.logger import Logger


def trackers(config: RunConfig, run_id: str, folder: Path) -> "list[Logger]":
    """The loggers that mirror a run; none by default."""
    if config.tracking.name == "none":
        return []
    import wandb
    from pytorch_lightning.loggers import WandbLogger

    return [
        WandbLogger(
            project=config.tracking.project,
            id=run_id,
            name=f"{config.method_name()}-{config.data.name}-{run_id}",
            save_dir=folder,
            offline=config.tracking.mode == "offline",
            config=config.to_dict(),
            settings=wandb.Settings(silent=True),  # the last line on the terminal is the run's result
        )
    ]
