"""Which measurements a figure needs of its selected runs, and the results that the store has."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from lmsweep.config.evaluation import (
    REGIONS_FILE,
    AuditConfig,
    EvaluationConfig,
    Measurement,
    StoredRunsConfig,
    parse_as,
)
from lmsweep.config.hydra import composed, config_folder
from lmsweep.config.sweeps import Sweep
from lmsweep.errors import ConfigError
from lmsweep.figures.collect import Attacks
from lmsweep.figures.drawing.curves import Regions
from lmsweep.figures.spec import FigureSpec
from lmsweep.store.folder import JobFolder
from lmsweep.store.store import Store

ATTACKER = "xent"  # black-box attacks take the examples of this method's runs, as in the paper

# The verdict on the evidence of an audit, and its reasons.
Judge = Callable[[AuditConfig, Mapping[str, Any]], tuple[str, list[str]]]


@dataclass(frozen=True)
class Wanted:
    """A measurement, and what the figure wants it for: the name of an attack, or a method."""

    name: str
    measurement: Measurement

    @property
    def folder(self) -> JobFolder:
        """Where the store keeps the measurement, whether it is there or not."""
        return Store(self.measurement.config.outputs, "evaluations").folder(self.measurement.id)

    @property
    def results(self) -> dict[str, Any] | None:
        """What the store has of the measurement."""
        return self.folder.read_results()


def attack_configs(sweep: Sweep, spec: FigureSpec) -> dict[str, EvaluationConfig]:
    """The configuration of every attack of a figure, without runs.

    An override of `attack.KEY` in `grid.evaluation` is for those attacks of the figure that have the key: a
    scale serves figures with different attacks.
    """
    of_attacks = [override for override in sweep.grid.evaluation if override.startswith("attack.")]
    common = [override for override in sweep.grid.evaluation if override not in of_attacks]
    configs = {}
    for name, attack in spec.attacks.items():
        own = [f"checkpoint={spec.checkpoint}", *attack.overrides, *common]
        if of_attacks:
            keys = _composed("evaluation", sweep, own)["attack"]
            own += [override for override in of_attacks if _key(override) in keys]
        config = parse_as(EvaluationConfig, _composed("evaluation", sweep, own))
        configs[name] = config.model_copy(update={"tracking": sweep.tracking})
    known = {key for file in Path(config_folder(), "attack").glob("*.yaml") for key in OmegaConf.load(file)}
    for override in of_attacks:
        if _key(override) not in known:
            raise ConfigError(f"{override} is not allowed: no attack in conf/attack/ has the key.")
    for panel in spec.panels:
        allowed = configs[panel.attack].attack.strengths if panel.attack else ()
        if panel.y.at is not None and panel.y.at not in allowed:
            raise ConfigError(
                f"y.at={panel.y.at:g} of panel {panel.name} is not allowed: it must be a strength of "
                f"{panel.attack} ({', '.join(f'{x:g}' for x in allowed)}); "
                f"change it in sweeps/{spec.name}.yaml."
            )
    return configs


def attacks(spec: FigureSpec, selected: pd.DataFrame, configs: Attacks) -> Iterator[Wanted]:
    """The attacks that the figure's panels show; `selected` has a row per panel and run.

    A black-box attack takes its examples from the selected cross-entropy run with the next other seed, so
    that no network is attacked by itself, and all methods of a seed meet the same examples.
    """
    for name, config in configs.items():
        panels = [panel.name for panel in spec.panels if panel.attack == name]
        targets = selected[selected["panel"].isin(panels)].drop_duplicates("run").sort_values("run")
        if config.source == "self":
            for run in targets["run"]:
                yield Wanted(name, Measurement("attack", config, (run,)))
            continue
        for seed in sorted(set(targets["seed"])):
            source, runs = _attacker(selected, seed), tuple(targets[targets["seed"] == seed]["run"])
            if source is not None:
                yield Wanted(name, Measurement("attack", config, runs, source))


def audits(sweep: Sweep, spec: FigureSpec, selected: pd.DataFrame) -> Iterator[Wanted]:
    """The masking audit of the first seed of each method that the figure attacks."""
    if not spec.audit:
        return
    overrides = [f"checkpoint={spec.checkpoint}", *sweep.grid.audit]
    config = parse_as(AuditConfig, _composed("audit", sweep, overrides))
    rows = selected[selected["panel"].isin(spec.attack_panels)].sort_values("seed")
    for row in rows.drop_duplicates("method").to_dict("records"):
        source = _attacker(selected, row["seed"])
        yield Wanted(row["method"], Measurement("audit", config, (row["run"],), source))


def regions(sweep: Sweep, spec: FigureSpec, points: pd.DataFrame) -> Iterator[Wanted]:
    """The decision regions of the first seed of each method, in the order of the figure."""
    if spec.kind != "regions":
        return
    overrides = ["accelerator=cpu", f"checkpoint={spec.checkpoint}"]
    config = parse_as(StoredRunsConfig, _composed("stored_runs", sweep, overrides))
    first = points.sort_values("seed").drop_duplicates("method").set_index("method")["run"]
    for method in spec.methods:
        if method in first.index:
            yield Wanted(method, Measurement("regions", config, (str(first[method]),)))


def curves(wanted: Sequence[Wanted]) -> tuple[dict[str, dict[str, dict[str, Any]]], list[str]]:
    """What the store has: by attack and run the curve, and the ids of all evaluations read."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    ids = []
    for one in wanted:
        if results := one.results:
            found.setdefault(one.name, {}).update(results["curves"])
            ids.append(one.measurement.id)
    return found, ids


def verdicts(wanted: Sequence[Wanted], judge: Judge) -> list[dict[str, Any]]:
    """The verdicts on the audits that the store has evidence of."""
    found = []
    for one in wanted:
        if results := one.results:
            verdict, reasons = judge(cast(AuditConfig, one.measurement.config), results)
            (run,) = one.measurement.targets
            found.append({"method": one.name, "run": run, "verdict": verdict, "reasons": reasons})
    return found


def read_regions(wanted: Sequence[Wanted]) -> list[Regions]:
    """The decision regions that the store has."""
    found = []
    for one in wanted:
        if results := one.results:
            kept = one.folder.read_file(one.folder.path / REGIONS_FILE)
            with np.load(io.BytesIO(kept), allow_pickle=False) as arrays:
                found.append(Regions(one.name, **arrays, test_accuracy=results["test_accuracy"]))
    return found


def _attacker(selected: pd.DataFrame, seed: int) -> str | None:
    """The cross-entropy run with the next other seed; after the last seed comes the first."""
    rows = selected[(selected["method"] == ATTACKER) & (selected["seed"] != seed)]
    runs = dict(zip(rows["seed"], rows["run"], strict=True))
    return runs[min(runs, key=lambda other: (other < seed, other))] if runs else None


def _composed(name: str, sweep: Sweep, overrides: Sequence[str]) -> dict[str, Any]:
    return composed(name, [*overrides, f"outputs={sweep.outputs}", "runs=[unknown]"])


def _key(override: str) -> str:
    return override.partition("=")[0].removeprefix("attack.")
