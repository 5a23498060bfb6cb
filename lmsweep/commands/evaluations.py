"""`lmsweep attack`, `audit` and `distances` measure stored runs: ids first, then Hydra's key=value."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from typing import TypeVar

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from lmsweep.commands import reported
from lmsweep.commands.jobs import measurement_job
from lmsweep.config.evaluation import (
    AuditConfig,
    DistancesConfig,
    EvaluationConfig,
    Measurement,
    OwnAuditConfig,
    parse_as,
)
from lmsweep.config.fields import Node
from lmsweep.config.hydra import as_dict, config_folder
from lmsweep.config.run import Request
from lmsweep.evaluation.jobs import PICTURE, attack_measurements, audit_measurement, judged
from lmsweep.evaluation.runs import find_run
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Job, JobFailedError, Results
from lmsweep.sweep.plan import Plan
from lmsweep.sweep.sweeper import make_launcher, register_plugins

# Options of Hydra whose value is a word of its own.
OPTIONS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--info", "-i", "--experimental-rerun"),
    *("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd"),
)
PLAIN = re.compile(r"[\w./+-]+")  # a word without quotes, lists and choices, which are for Hydra to read

C = TypeVar("C", bound=Node)


def command(config_name: str, schema: type[C], work: Callable[[C], None]) -> None:
    """Compose conf/<config_name>.yaml with the command line, check it against `schema`, call `work`."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that `reported` can explain
    sys.argv = [sys.argv[0], *hydra_arguments(sys.argv[1:])]
    register_plugins()

    @reported(schema)  # here too, because Hydra prints a line of its own about any error that leaves a job
    def task(config: DictConfig) -> None:
        work(parse_as(schema, as_dict(config)))

    with reported(schema):
        hydra.main(version_base="1.3", config_path=config_folder(), config_name=config_name)(task)()


def measured(jobs: Sequence[Job]) -> list[tuple[JobFolder, Results]]:
    """Have the configured launcher run what the store lacks; raise the first failure."""
    plan = Plan.of(jobs)
    if "missing" in plan.states(Request()).values():
        launcher = make_launcher(HydraConfig.get().launcher)
        with redirect_stdout(sys.stderr):  # stdout belongs to results
            outcome = launcher.submit(plan, Request())
        if outcome.failures:
            name, why = next(iter(outcome.failures.items()))
            raise JobFailedError(
                f"Evaluation {name} failed: {why} (details in {plan.jobs[name].folder.error})"
            )
    found = [(plan.jobs[name].folder, plan.jobs[name].folder.read_results()) for name in plan.asked]
    return [(folder, results) for folder, results in found if results is not None]


def hydra_arguments(arguments: list[str]) -> list[str]:
    """Turn what is neither key=value nor an option or its value into the key `runs`.

    Ids are quoted, because Hydra takes 1e5 for a number. Options come last, because Hydra's parser loses
    keys after them.
    """
    runs: list[str] = []
    keys: list[str] = []
    options: list[str] = []
    words = iter(arguments)
    for word in words:
        if word.startswith("-"):
            options.append(word)
            if word in OPTIONS_WITH_VALUE:
                options.extend(islice(words, 1))
        elif "=" in word or word[:1] in ("~", "+"):
            key, _, value = word.partition("=")
            keys.append(f"source={_quoted(value)}" if key == "source" and PLAIN.fullmatch(value) else word)
        else:
            runs.append(word)
    if runs:
        keys.append(f"runs=[{','.join(map(_quoted, runs))}]")
    return [*keys, *options]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def attack_command() -> None:
    """Attack stored runs: how accurate is each of them at every strength?"""
    command("evaluation", EvaluationConfig, _attack)


def _attack(config: EvaluationConfig) -> None:
    wanted, runs = attack_measurements(config)
    for folder, results in measured([measurement_job(one, runs) for one in wanted]):
        by = "itself" if results["source"] is None else f"run {results['source']}"
        for name, found in results["curves"].items():
            points = zip(found["strengths"], found["accuracy"], strict=True)
            curve = "  ".join(f"{strength:g}: {accuracy:.2%}" for strength, accuracy in points)
            print(
                f"{folder.path}  {results['methods'][name]} (run {name}), {config.attack.kind} from {by}, "
                f"accuracy by {results['unit']}  {curve}",
                flush=True,
            )


ROWS = {
    "fgsm": "FGSM, one step",
    "ifgsm": "IFGSM, cross-entropy",
    "ifgsm_log_odds": "IFGSM, nothing hidden",
    "apgd_margin": "APGD, logit margin",
    "apgd_xent": "APGD, cross-entropy",
    "minimal": "smallest perturbation",
    "apgd_targeted": "APGD, targeted DLR",
    "search": "search, no gradients",
    "transfer": "transfer",
}


def audit_command() -> None:
    """Tell whether the robustness of a run or of any network is real, or its gradients are masked."""
    if any(word.startswith("model=") for word in sys.argv[1:]):
        command("audit_own", OwnAuditConfig, _audit_own)
    else:
        command("audit", AuditConfig, _audit)


def _audit(config: AuditConfig) -> None:
    wanted = [audit_measurement(config, find_run(config.outputs, name, config.trust)) for name in config.runs]
    for folder, results in measured([measurement_job(one, runs) for one, runs in wanted]):
        verdict, reasons = judged(config, results)
        (target,) = results["targets"]
        name = f"{results['methods'][target]}, run {target}"
        show_audit({**results, "verdict": verdict, "reasons": reasons}, name, folder.results)


def _audit_own(config: OwnAuditConfig) -> None:
    from lmsweep.evaluation.own import audit_own  # imports torch, which an error in a key does not need

    show_audit(audit_own(config, ROWS), config.model.target, Path(config.page) / "index.html")


def show_audit(results: Results, name: str, path: Path) -> None:
    """Print the accuracies as a table, then the verdict and its reasons."""
    console = Console(file=sys.stdout, highlight=False)
    evidence = results["evidence"]
    title = f"{name}: accuracy on {evidence['samples']} samples"
    table = Table("attack", "0", *(f"{epsilon:g}" for epsilon in evidence["epsilons"]), "1", title=title)
    for key, accuracies in {**evidence["curves"], "worst of all": evidence["worst"]}.items():
        unbounded = f"{evidence['indicators']['unconstrained_fails']:.1%}" if key == "ifgsm" else ""
        shown = [f"{value:.1%}" for value in (evidence["clean"], *accuracies)]
        table.add_row(ROWS.get(key, key), *shown, unbounded)
    console.print(table)
    signs = {**evidence["indicators"], "saturated": evidence["saturated"]}
    values = {name: value for name, value in signs.items() if value is not None}
    console.print(", ".join(f"{name.replace('_', ' ')} {value:.1%}" for name, value in values.items()))
    console.print(f"Verdict: [bold]{results['verdict']}[/bold], because")
    for reason in results["reasons"]:
        console.print(f"  - {reason}", soft_wrap=True)
    console.print(f"{path}", soft_wrap=True)


def distances_command() -> None:
    """Compare the linearised distances of runs with those that attacks find."""
    command("distances", DistancesConfig, _distances)


def _distances(config: DistancesConfig) -> None:
    runs = [find_run(config.outputs, name, config.trust) for name in config.runs]
    jobs = [measurement_job(Measurement("distances", config, (run.id,)), {run.id: run}) for run in runs]
    for folder, results in measured(jobs):
        (method,) = results["methods"].values()
        for values in results["distances"]:
            rank = values["rank_correlation"]
            print(
                f"{folder.path / PICTURE}  {method} {values['norm']}: rank correlation "
                f"{'unknown' if rank is None else f'{rank:.3f}'}, n = {values['samples']}, "
                f"not found {values['not_found']}",
                flush=True,
            )
