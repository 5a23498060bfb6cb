"""`python -m lmsweep.audit RUN [RUN ...]`: is a run's robustness real, or are its gradients masked?"""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.command import command
from lmsweep.evaluation.config import AuditConfig
from lmsweep.evaluation.jobs import Job, complete
from lmsweep.evaluation.runs import StoredRun, check_transfer, cross_entropy_source, find_run
from lmsweep.sweep.execute import Results
from lmsweep.sweep.store import RunFolder

ROWS = {
    "fgsm": "FGSM, one step",
    "ifgsm": "IFGSM, cross-entropy",
    "ifgsm_margin": "IFGSM, logit margin",
    "pgd": "PGD with restarts",
    "search": "search, no gradients",
    "transfer": "transfer",
}


def audit(config: AuditConfig, run: StoredRun) -> tuple[RunFolder, Results]:
    """Measure one run, or read what was measured before, and judge it by the thresholds of this request."""
    job = audit_job(config, run, _source(config, run))
    ((folder, results),) = complete(config.outputs, [job], lambda jobs, _: _measure(config, jobs))
    verdict, reasons = judged(config, results)
    return folder, {**results, "verdict": verdict, "reasons": reasons}


def audit_job(config: AuditConfig, run: StoredRun, source: StoredRun | None) -> Job:
    """The audit of a run as the store knows it; `source` is whose examples transfer is tested with."""
    return Job("audit", run, source, _options(config))


def judged(config: AuditConfig, results: Results) -> tuple[str, list[str]]:
    """The verdict on stored evidence, and its reasons."""
    from lmsweep.attacks.masking import Evidence, Thresholds, judge

    evidence, thresholds = Evidence(**results["evidence"]), Thresholds(**config.thresholds.model_dump())
    return judge(evidence, thresholds)


def _options(config: AuditConfig) -> dict[str, Any]:
    options = config.identity_dict()
    del options["source"], options["thresholds"]  # thresholds judge the evidence; the store keeps that only
    return options


def _source(config: AuditConfig, run: StoredRun) -> StoredRun | None:
    if config.source == "none":
        return None
    if config.source != "xent":
        source = find_run(config.outputs, config.source)
        if source.id == run.id:
            raise ConfigError(
                f"source={config.source} is the audited run itself: it must be another run, xent or none."
            )
        check_transfer(source, run, config.split)
        return source
    try:
        source = cross_entropy_source(config.outputs, run)
        check_transfer(source, run, config.split)
        return source
    except UserError:  # the audit says that transfer was not tested, rather than not answering at all
        return None


def _measure(config: AuditConfig, jobs: list[Job]) -> list[Results]:
    from lmsweep.attacks.masking import measure
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    device = device_of(config)
    results = []
    for job in jobs:
        checkpoint = load_run(job.target, config.root, device)
        evidence = measure(
            checkpoint.network,
            batches_of(config, checkpoint.data),
            epsilons=config.epsilons,
            alpha=config.alpha,
            pgd_steps=config.pgd_steps,
            restarts=config.restarts,
            queries=config.queries,
            unbounded_alpha=config.unbounded_alpha,
            seed=config.seed,
            source=load_run(job.source, config.root, device).network if job.source else None,
        )
        results.append({"evidence": evidence.to_dict()})
    return results


def show(results: Results, folder: RunFolder, console: Console) -> None:
    """Print the accuracies as a table, then the verdict and its reasons."""
    evidence = results["evidence"]
    title = f"{results['method']}, run {results['target']}: accuracy on {evidence['samples']} samples"
    table = Table("attack", "0", *(f"{epsilon:g}" for epsilon in evidence["epsilons"]), "1", title=title)
    for key, name in ROWS.items():
        if evidence[key] is None:
            table.add_row(name, *["-"] * (len(evidence["epsilons"]) + 2))
            continue
        unbounded = f"{evidence['unbounded']:.1%}" if key == "ifgsm" else ""
        cells = [f"{value:.1%}" for value in evidence[key]]
        table.add_row(name, f"{evidence['clean']:.1%}", *cells, unbounded)
    console.print(table)
    console.print(
        f"Exactly zero gradients: {evidence['zero_gradients']:.1%} of samples; "
        f"softmax rounded to 1: {evidence['saturated']:.1%}."
    )
    console.print(f"Verdict: [bold]{results['verdict']}[/bold], because")
    for reason in results["reasons"]:
        console.print(f"  - {reason}", soft_wrap=True)
    console.print(f"{folder.results}", soft_wrap=True)


def _work(config: AuditConfig) -> None:
    console = Console(file=sys.stdout, highlight=False)
    for name in config.runs:
        folder, results = audit(config, find_run(config.outputs, name))
        show(results, folder, console)


if __name__ == "__main__":
    command("audit", AuditConfig, _work)
