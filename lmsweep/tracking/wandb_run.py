"""A run as W&B's own files; an upload, when there is one, is the work of another process.

Every file holds the whole run: a run that goes on after a kill begins a new file and writes into it all that
came before. So only the newest file of an id has to be uploaded, and uploading it twice changes nothing.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.config.groups import TrackingConfig
from lmsweep.files import write_atomically
from lmsweep.tracking.tracker import TRAIN, Card, Line, Look, Rows, Tracker, attack_metric
from lmsweep.tracking.upload import RUN_ID, SWEEP_ID, finish_upload, start_upload

if TYPE_CHECKING:
    import wandb
    from torch import Tensor

CARD = "lmsweep.json"  # what a folder is about, for those who look which runs are mirrored
LOCK = "lmsweep.lock"  # held while a folder is written or uploaded
START_SECONDS = 30.0  # for W&B's own process on this machine to answer; no network is involved
CONFUSIONS = 10_000  # W&B shows so many rows of a table
STEP = "step"


class WandbRun(Tracker):
    """One W&B run in the making."""

    def __init__(self, card: Card, options: TrackingConfig, folder: Path) -> None:
        # W&B's reports about itself would wait for the network when the process ends.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self.options = options
        about = {**vars(card), "id": wandb_id(card), "project": options.project, "entity": options.entity}
        how: dict[str, Any] = {"mode": "offline", "reinit": "create_new", "settings": settings(options)}
        self.run = wandb.init(**about, **how, dir=folder.parent)
        self.run.define_metric("*", step_metric=STEP)
        attack = card.config.get("attack_name")
        if attack:
            self.run.define_metric(attack_metric(attack, "*"), step_metric=attack_metric(attack, "strength"))
        self.folder = Path(self.run.settings.sync_dir)
        self.staging = os.environ.get("WANDB_DATA_DIR") or str(folder.resolve())
        told = {"id": self.run.id, "tags": card.tags, "staging": self.staging}
        write_atomically(self.folder / CARD, json.dumps(told) + "\n")
        self.lock = (self.folder / LOCK).open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.upload = start_upload(self.folder, options, self.lock.fileno())

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({**values, STEP: step}, step=step)

    def describe(self, results: Mapping[str, Any], portrait: Look, checkpoint: Path) -> None:
        import wandb

        try:
            seen = portrait()
            if seen is not None:
                pictures = [
                    wandb.Image(e.picture.permute(1, 2, 0).numpy(), caption=e.caption) for e in seen.examples
                ]
                examples = {"adversarial_examples": pictures} if pictures else {}
                self.show({"confusion": confusion_chart(seen.confusion), **examples})
        finally:
            # After the last row, whose values would replace those of the selected weights.
            more = [key for key in ("seconds", "train_seconds", "provenance") if key in results]
            self.run.summary.update({**results["metrics"], **{key: results[key] for key in more}})
        if self.options.checkpoint and checkpoint.exists():
            artifact = wandb.Artifact(f"checkpoint-{self.run.id}", type="model")
            with _staging_in(self.staging):
                artifact.add_file(str(checkpoint))
            self.run.log_artifact(artifact)

    def table(self, name: str, columns: Sequence[str], rows: Rows, line: Line | None = None) -> None:
        import wandb

        table = wandb.Table(columns=list(columns), data=[list(row) for row in rows])
        row: dict[str, Any] = {name: table}
        if line is not None:
            row[f"{name}_plot"] = wandb.plot.line(table, line.x, line.y, stroke=line.group, title=line.title)
        self.show(row)

    def picture(self, name: str, file: Path) -> None:
        import wandb

        self.show({name: wandb.Image(str(file))})

    def keep(self, file: Path) -> None:
        # A link would break when the folder is moved.
        copy = Path(self.run.dir) / file.name
        shutil.copyfile(file, copy)
        self.run.save(str(copy), base_path=self.run.dir, policy="now")

    def show(self, row: Mapping[str, Any]) -> None:
        """Tables, charts and pictures, as one more row."""
        with _staging_in(self.staging):
            self.run.log(dict(row))

    def close(self, exit_code: int, *, given_back: bool = False) -> None:
        if given_back:
            self.run.mark_preempting()
        self.run.finish(exit_code=exit_code)
        if self.upload is not None:
            finish_upload(self.upload, self.folder, 0.0 if given_back else self.options.patience)
        self.lock.close()


@contextmanager
def _staging_in(folder: str) -> Iterator[None]:
    """Let the files of artifacts wait for their upload in `folder`, not in the home of whoever trained."""
    before = os.environ.get("WANDB_DATA_DIR")
    os.environ["WANDB_DATA_DIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["WANDB_DATA_DIR"]


def wandb_id(card: Card) -> str:
    """Our id; an agent of a W&B sweep has given the run another one already."""
    given = os.environ.get(RUN_ID) if os.environ.get(SWEEP_ID) else None
    return given if given and card.job_type == TRAIN else card.id


def settings(options: TrackingConfig) -> "wandb.Settings":
    """Quiet, local and bounded."""
    import wandb

    return wandb.Settings(
        silent=True,  # the last line on the terminal is the run's result
        console="off",  # log.txt has what was printed
        symlink=False,  # runs of a sweep would fight over latest-run
        disable_git=True,  # the commit is a tag, and a remote's address may hold a password
        sweep_id=os.environ.get(SWEEP_ID),
        init_timeout=START_SECONDS,
        finish_timeout=START_SECONDS,
        # Who watches a run online wants to see it soon.
        x_transaction_log_flush_interval=2.0 if options.mode == "online" else 15.0,
    )


def confusion_chart(counts: "Tensor") -> Any:
    """W&B's chart of a confusion matrix; of very many classes the most frequent pairs.

    `wandb.plot.confusion_matrix` makes a row of every pair of classes, a million for ImageNet.
    """
    import wandb

    pairs = [(int(counts[row, column]), row, column) for row, column in counts.nonzero().tolist()]
    rows: list[Any] = [[str(row), str(col), n] for n, row, col in sorted(pairs, reverse=True)[:CONFUSIONS]]
    table = wandb.Table(columns=["Actual", "Predicted", "nPredictions"], data=rows)
    fields = {"Actual": "Actual", "Predicted": "Predicted", "nPredictions": "nPredictions"}
    return wandb.plot_table("wandb/confusion_matrix/v1", table, fields, {"title": "Test set"})
