"""lmsweep from Python: `lmsweep.run`, `sweep`, `results` and `load`, for notebooks and scripts."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.commands import default_outputs
from lmsweep.commands.jobs import run_training
from lmsweep.commands.reproduce import train
from lmsweep.commands.store import results_table
from lmsweep.config.fields import explained
from lmsweep.config.hydra import composed
from lmsweep.config.identity import dotted
from lmsweep.config.run import RunConfig, split
from lmsweep.config.sweeps import read_sweep, with_full_scale
from lmsweep.evaluation.runs import find_run
from lmsweep.figures.make import spec_of
from lmsweep.figures.select import Stages
from lmsweep.sweep.sweeper import make_launcher

if TYPE_CHECKING:
    import pandas as pd

    from lmsweep.evaluation.measure import TrainedNetwork


@dataclass(frozen=True)
class Run:
    """A finished run: where its files are, what it measured, and how it was configured."""

    id: str
    folder: Path
    metrics: Mapping[str, float]
    config: RunConfig


def run(**keys: Any) -> Run:
    """Train one network, or read what the store has of it.

    Keys are those of the command line: `run(method="xent", seed=1)`, groups of keys as mappings
    `run(trainer={"max_steps": 100})`, or with dots `run(**{"margin.norm": "inf"})`.
    """
    words = with_full_scale(overrides(keys))
    with explained(RunConfig):
        config, request = split(composed("config", words))
    folder, found = run_training(config, request)
    return Run(folder.id, folder.path, found["metrics"], config)


def sweep(name: str, *, scale: str = "smoke", **keys: Any) -> "pd.DataFrame":
    """Train what is missing of a file of sweeps/ at a scale; return a row per run, as `results` does.

    Of a sweep in two stages these are the runs that report.
    """
    with explained(RunConfig):
        asked = read_sweep(name, scale, overrides(keys))
    train([asked], make_launcher(asked.launcher), asked.request)
    return results_table(asked.outputs, Stages(asked, spec_of(asked)).reporting_runs())


def load(run: "str | Run", outputs: str | Path | None = None, trust: str | None = None) -> "TrainedNetwork":
    """The trained network of a run (its id, or the beginning of one): `.predict(images)` gives classes.

    `trust` names packages of your own whose code the stored run may call (default: LMSWEEP_TRUST).
    """
    import torch

    from lmsweep.evaluation.measure import TrainedNetwork, load_run

    name = run if isinstance(run, str) else str(run.folder)
    trusted = os.environ.get("LMSWEEP_TRUST", "") if trust is None else trust
    stored = find_run(str(outputs or default_outputs()), name, trusted)
    loaded = load_run(stored, stored.config.data.root, torch.device("cpu"))
    return TrainedNetwork(loaded.network, loaded.data.input_shape)


def results(outputs: str | Path | None = None) -> "pd.DataFrame":
    """Every run of a store, a row each: state, accuracies, and the configuration as `config.*` columns."""
    return results_table(Path(outputs or default_outputs()))


def overrides(keys: Mapping[str, Any]) -> list[str]:
    """Keys and values as words of the command line."""
    return [f"{key}={_word(value)}" for key, value in dotted(keys).items()]


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value).replace('"', "'")  # JSON writes null, true, 0.5 and lists as Hydra does
