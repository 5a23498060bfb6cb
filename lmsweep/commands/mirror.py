"""Mirror finished runs from the store: those that were trained without a tracker, or for another sweep.

A file that is written anew takes the place of the older one, also at W&B.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lmsweep.config.run import RunConfig
from lmsweep.store.store import JobFolder, Store
from lmsweep.store.sweeps import sweeps_by_run
from lmsweep.tracking.card import folder_of, run_card, sweep_tag
from lmsweep.tracking.run import tracked

if TYPE_CHECKING:
    from lmsweep.training.evaluate import Portrait


def mirror_stored(runs: Mapping[str, RunConfig]) -> int:
    """Mirror what is finished and not mirrored with all its tags yet; return how many those were."""
    wanted = unmirrored(runs)
    for name in wanted:
        _mirror(name, runs[name])
    return len(wanted)


def unmirrored(runs: Mapping[str, RunConfig]) -> list[str]:
    """Finished runs that ask for a tracker which lacks them, or the tag of one of their sweeps."""
    found = []
    known: dict[Path, dict[str, set[str]]] = {}
    asked: dict[Path, dict[str, list[tuple[str, str | None]]]] = {}
    for name, config in runs.items():
        if config.tracking.name == "none" or Store(config.outputs).folder(name).read_results() is None:
            continue
        folder = folder_of(config.tracking, config.outputs)
        outputs = Path(config.outputs)
        if outputs not in asked:
            asked[outputs] = sweeps_by_run(outputs)
        sweeps = asked[outputs].get(name, [])
        card = run_card(config, name, sweeps)
        if config.tracking.name == "tensorboard":
            there = (folder / f"{card.job_type}-{card.id}").exists()
        else:
            from lmsweep.tracking.wandb_run import wandb_id

            if folder not in known:
                known[folder] = _tags(folder)
            tags = known[folder].get(wandb_id(card))
            there = tags is not None and {sweep_tag(*pair) for pair in sweeps} <= tags
        if not there:
            found.append(name)
    return found


def _tags(folder: Path) -> dict[str, set[str]]:
    """The tags of every W&B run with files in `folder`, by the newest of them."""
    from lmsweep.tracking.wandb_run import CARD

    cards = [json.loads(path.read_bytes()) for path in sorted(folder.glob(f"offline-run-*/{CARD}"))]
    return {card["id"]: set(card["tags"]) for card in cards}


def _mirror(name: str, config: RunConfig) -> None:
    from lmsweep.training.records import replay

    folder = Store(config.outputs).folder(name)
    results = folder.read_results() or {}
    with tracked(config, name) as tracker:
        tracker.open()
        replay(folder.metrics, tracker.log)
        tracker.describe(results, partial(_portrait, config, folder), folder.checkpoint)


def _portrait(config: RunConfig, folder: JobFolder) -> "Portrait | None":
    if not folder.checkpoint.exists():  # deleted by `lmsweep store gc`
        return None
    import torch

    from lmsweep.evaluation.measure import load_run
    from lmsweep.evaluation.runs import StoredRun
    from lmsweep.training.evaluate import portrait

    loaded = load_run(StoredRun(folder, config), config.data.root, torch.device("cpu"))
    options = config.tracking
    return portrait(
        loaded.network,
        loaded.data.test,
        loaded.data.num_classes,
        examples=options.examples,
        epsilon=options.epsilon,
    )
