"""Which evaluations a figure needs of its selected runs, and what the store has of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.config.evaluation import AuditConfig, EvaluationConfig, parse_as
from lmsweep.config.hydra import config_folder
from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError
from lmsweep.evaluation.jobs import Job
from lmsweep.evaluation.runs import StoredRun
from lmsweep.figures.spec import FigureSpec
from lmsweep.store.store import RunFolder, Store

ATTACKER = "xent"  # whose examples black-box attacks take, as the paper


@dataclass(frozen=True)
class Request:
    """Evaluations that are measured together: `targets` under the examples of `source`, or their own."""

    attack: str
    config: EvaluationConfig
    targets: tuple[str, ...]
    source: str | None  # None: each target attacks itself

    def jobs(self, runs: Mapping[str, RunConfig]) -> dict[str, Job]:
        """The evaluation of each target."""
        store = Store(self.config.outputs)
        stored = {name: StoredRun(store.run(name), runs[name]) for name in (*self.targets, *self._sources())}
        options = self.config.attack_identity(transfer=self.source is not None)
        return {
            name: Job("attack", stored[name], stored[self.source or name], options) for name in self.targets
        }

    def _sources(self) -> tuple[str, ...]:
        return (self.source,) if self.source else ()


def attack_configs(spec: FigureSpec, outputs: str, overrides: Sequence[str]) -> dict[str, EvaluationConfig]:
    """The configuration of every attack of a figure, without runs; `overrides` come from the scale.

    An override of `attack.KEY` is for those attacks of the figure that have the key.
    """
    of_attacks = [override for override in overrides if override.startswith("attack.")]
    common = [override for override in overrides if override not in of_attacks]
    configs = {}
    for name, attack in spec.attacks.items():
        own = [*attack.overrides, *common]
        if of_attacks:
            keys = _composed("evaluation", outputs, own)["attack"]
            own += [override for override in of_attacks if _key(override) in keys]
        configs[name] = parse_as(EvaluationConfig, _composed("evaluation", outputs, own))
    for override in of_attacks if configs else ():
        if not any(_key(override) in type(config.attack).model_fields for config in configs.values()):
            raise ConfigError(f"{override} is not allowed: no attack of {spec.name} has the key.")
    for panel in spec.panels:
        allowed = configs[panel.attack].attack.strengths if panel.attack else ()
        if panel.y.at is not None and panel.y.at not in allowed:
            raise ConfigError(
                f"y.at={panel.y.at:g} of panel {panel.name} is not allowed: it must be a strength of "
                f"{panel.attack} ({', '.join(f'{x:g}' for x in allowed)}); "
                f"change it in sweeps/{spec.name}.yaml."
            )
    return configs


def requests(
    spec: FigureSpec, selected: pd.DataFrame, configs: Mapping[str, EvaluationConfig]
) -> Iterator[Request]:
    """What has to be evaluated; `selected` has a row per panel and run.

    A black-box attack takes its examples from the selected cross-entropy run with the next other seed, so
    that no network is attacked by itself, and all methods of a seed meet the same examples.
    """
    for name, config in configs.items():
        panels = [panel for panel in spec.panels if panel.attack == name]
        rows = selected[selected["panel"].isin([panel.name for panel in panels])]
        targets = rows.drop_duplicates("run").sort_values("run")
        if config.source == "self":
            for run in targets["run"]:
                yield Request(name, config.model_copy(update={"runs": [run]}), (run,), None)
            continue
        attackers = _attackers(selected)
        for seed in sorted(set(targets["seed"])):
            group = targets[targets["seed"] == seed]
            source = _next(attackers, seed)
            if source is not None:
                runs = tuple(group["run"])
                update = {"runs": list(runs), "source": source}
                yield Request(name, config.model_copy(update=update), runs, source)


def audit_requests(
    spec: FigureSpec, selected: pd.DataFrame, outputs: str, overrides: Sequence[str]
) -> Iterator[tuple[str, AuditConfig]]:
    """The audit of the first seed of each method that the figure attacks: the method, and the request."""
    if not spec.audit:
        return
    config = parse_as(AuditConfig, _composed("audit", outputs, overrides))
    attackers = _attackers(selected)
    rows = selected[selected["panel"].isin(spec.attack_panels)].sort_values("seed")
    for method, row in rows.drop_duplicates("method").set_index("method").iterrows():
        source = _next(attackers, int(row["seed"])) or "none"
        yield str(method), config.model_copy(update={"runs": [row["run"]], "source": source})


def curves(
    requested: Sequence[Request], runs: Mapping[str, RunConfig]
) -> tuple[dict[str, dict[str, dict[str, Any]]], list[str]]:
    """What the store has: by attack and run the results, and the ids of all evaluations read."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    ids = []
    for request in requested:
        store = Store(request.config.outputs, "evaluations")
        for run, job in request.jobs(runs).items():
            results = store.run(job.id).read_results()
            if results is not None:
                found.setdefault(request.attack, {})[run] = results
                ids.append(job.id)
    return found, ids


def missing_requests(requested: Sequence[Request], runs: Mapping[str, RunConfig]) -> list[Request]:
    """Those of which the store lacks an evaluation."""

    def is_done(folder: RunFolder) -> bool:
        return folder.read_status().get("state") == "done"

    return [
        request
        for request in requested
        if not all(
            is_done(Store(request.config.outputs, "evaluations").run(job.id))
            for job in request.jobs(runs).values()
        )
    ]


def _attackers(selected: pd.DataFrame) -> dict[int, str]:
    rows = selected[selected["method"] == ATTACKER]
    return {int(seed): str(run) for seed, run in zip(rows["seed"], rows["run"], strict=True)}


def _next(attackers: Mapping[int, str], seed: int) -> str | None:
    others = sorted((other < seed, other) for other in attackers if other != seed)
    return attackers[others[0][1]] if others else None


def _composed(name: str, outputs: str, overrides: Sequence[str]) -> dict[str, Any]:
    with initialize_config_dir(config_folder(), version_base="1.3"):
        composed = compose(name, [*overrides, f"outputs={outputs}", "runs=[unknown]"])
    return cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))


def _key(override: str) -> str:
    return override.partition("=")[0].removeprefix("attack.")
