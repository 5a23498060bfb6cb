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


def attacks(
    spec: FigureSpec, selected: pd.DataFrame, configs: Mapping[str, EvaluationConfig]
) -> Iterator[Wanted]:
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
        attackers = _attackers(selected)
        for seed in sorted(set(targets["seed"])):
            source = _next(attackers, seed)
            if source is not None:
                runs = tuple(targets[targets["seed"] == seed]["run"])
                yield Wanted(name, Measurement("attack", config, runs, source))


def audits(sweep: Sweep, spec: FigureSpec, selected: pd.DataFrame) -> Iterator[Wanted]:
    """The masking audit of the first seed of each method that the figure attacks."""
    if not spec.audit:
        return
    overrides = [f"checkpoint={spec.checkpoint}", *sweep.grid.audit]
    config = parse_as(AuditConfig, _composed("audit", sweep, overrides))
    attackers = _attackers(selected)
    rows = selected[selected["panel"].isin(spec.attack_panels)].sort_values("seed")
    for method, row in rows.drop_duplicates("method").set_index("method").iterrows():
        source = _next(attackers, int(row["seed"]))
        yield Wanted(str(method), Measurement("audit", config, (row["run"],), source))


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
    for one, results in _stored(wanted):
        found.setdefault(one.name, {}).update(results["curves"])
        ids.append(one.measurement.id)
    return found, ids


def verdicts(wanted: Sequence[Wanted], judge: Judge) -> list[dict[str, Any]]:
    """The verdicts on the audits that the store has evidence of."""
    found = []
    for one, results in _stored(wanted):
        verdict, reasons = judge(cast(AuditConfig, one.measurement.config), results)
        (run,) = one.measurement.targets
        found.append({"method": one.name, "run": run, "verdict": verdict, "reasons": reasons})
    return found


def read_regions(wanted: Sequence[Wanted]) -> list[Regions]:
    """The decision regions that the store has."""
    found = []
    for one, results in _stored(wanted):
        kept = one.folder.read_file(one.folder.path / REGIONS_FILE)
        with np.load(io.BytesIO(kept), allow_pickle=False) as arrays:
            found.append(Regions(one.name, **arrays, test_accuracy=results["test_accuracy"]))
    return found


def _stored(wanted: Sequence[Wanted]) -> Iterator[tuple[Wanted, dict[str, Any]]]:
    for one in wanted:
        results = one.folder.read_results()
        if results is not None:
            yield one, results


def _attackers(selected: pd.DataFrame) -> dict[int, str]:
    rows = selected[selected["method"] == ATTACKER]
    return {int(seed): str(run) for seed, run in zip(rows["seed"], rows["run"], strict=True)}


def _next(attackers: Mapping[int, str], seed: int) -> str | None:
    others = sorted((other < seed, other) for other in attackers if other != seed)
    return attackers[others[0][1]] if others else None


def _composed(name: str, sweep: Sweep, overrides: Sequence[str]) -> dict[str, Any]:
    return composed(name, [*overrides, f"outputs={sweep.outputs}", "runs=[unknown]"])


def _key(override: str) -> str:
    return override.partition("=")[0].removeprefix("attack.")
