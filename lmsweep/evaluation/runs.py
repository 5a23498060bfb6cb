"""Find runs in the store, and the run whose examples a black-box attack takes. Needs no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmsweep.config.run import RunConfig, parse
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.trust import check_names
from lmsweep.store.store import JobFolder, Store

# A comparison of methods holds everything else fixed that counts for a run's identity.
COMPARED = ("seed", "method", "margin", "adversarial", "telemetry")


@dataclass(frozen=True)
class StoredRun:
    """A finished run and the configuration it was trained with."""

    folder: JobFolder
    config: RunConfig
    trust: str | None = None  # packages that a stored configuration may call; None: it is the caller's own

    @property
    def id(self) -> str:
        """The run's id, from its configuration: evaluations are kept by it, and a folder can be renamed."""
        return self.config.id


Runs = Mapping[str, StoredRun]  # by id


def find_run(outputs: str, name: str, trust: str | None = "") -> StoredRun:
    """Find a finished run by its id, by a beginning that no other id has, or by its folder.

    Its configuration may name code of the packages in `trust`, beside ours and torch's; None for those who
    only read it.
    """
    path = Path(name)
    if (path / "config.yaml").is_file():
        return _read(JobFolder(path.resolve()), trust)
    return _read(Store(outputs).find(name), trust)


def conditions(config: RunConfig) -> dict[str, Any]:
    """What runs have in common whose methods can be compared."""
    return {key: value for key, value in config.identity_dict().items() if key not in COMPARED}


def cross_entropy_source(outputs: str, target: StoredRun) -> StoredRun:
    """The cross-entropy run with the target's conditions and the next other seed, as the paper's attacker."""
    wanted, seed = conditions(target.config), target.config.seed
    rivals = {
        run.config.seed: run
        for run in _finished_cross_entropy(outputs, target.trust or "")
        if run.config.seed != seed and conditions(run.config) == wanted
    }
    if not rivals:
        raise UserError(
            f"Run {target.id} has no cross-entropy run of its data and model with another seed in {outputs}; "
            f"train one with its keys, method=xent and seed={seed + 1}, or name a run with source=RUN."
        )
    return rivals[min(rivals, key=lambda other: (other < seed, other))]


def check_transfer(source: StoredRun, target: StoredRun, split: str) -> None:
    """Refuse a source that does not have the target's samples, or not in the same split."""
    if source.config.data.source != target.config.data.source:
        raise UserError(f"Run {source.id} cannot attack run {target.id}: they have different data.")
    if split != "test" and _draw(source.config) != _draw(target.config):
        raise ConfigError(
            f"split={split} is not allowed with examples of run {source.id} for run {target.id}: it must be "
            "test, the only split that runs with different seeds, fractions or label noise share."
        )


def _draw(config: RunConfig) -> tuple[Any, ...]:
    """What decides which samples and labels are for training and validation."""
    data = config.data
    return config.seed, data.fraction, data.label_noise


def _finished_cross_entropy(outputs: str, trust: str) -> Iterator[StoredRun]:
    for path in sorted(Store(outputs).root.glob("*/results.json")):
        folder = JobFolder(path.parent)
        # The results name the method, and are read much faster than a configuration is checked.
        if (folder.read_results() or {}).get("method") != "xent":
            continue
        try:
            yield _read(folder, trust)
        except UserError:
            continue  # made when there were other keys, so it shares its conditions with no other run


def _read(folder: JobFolder, trust: str | None) -> StoredRun:
    status = folder.read_status()
    state = status.get("state")
    if state not in ("done", "damaged"):
        raise UserError(f"Run {folder.id} is not finished (it is {state}); train it first.")
    try:
        run = StoredRun(folder, parse(folder.read_config()), trust)
    except ConfigError as error:
        raise UserError(
            f"Run {folder.id} was made by another version of lmsweep ({error}); train it again."
        ) from None
    if run.id != folder.id:
        raise UserError(
            f"{folder.config} describes run {run.id}, not {folder.id}: name the folder {run.id} again, "
            "or train the run again if another version of lmsweep made it."
        )
    if state == "damaged":
        raise UserError(status["reason"])
    if trust is not None:
        check_names(run.config, trust)
    return run
