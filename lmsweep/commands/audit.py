"""`lmsweep audit RUN [RUN ...]`: is a run's robustness real, or are its gradients masked?"""

import sys

from rich.console import Console
from rich.table import Table

from lmsweep.commands.jobs import measurement_job
from lmsweep.commands.stored_runs import command, measured
from lmsweep.config.evaluation import AuditConfig
from lmsweep.evaluation.audit import audit_measurement, judged
from lmsweep.evaluation.runs import find_run
from lmsweep.store.folder import JobFolder
from lmsweep.store.job import Results

ROWS = {
    "fgsm": "FGSM, one step",
    "ifgsm": "IFGSM, cross-entropy",
    "ifgsm_margin": "IFGSM, logit margin",
    "pgd": "PGD with restarts",
    "search": "search, no gradients",
    "transfer": "transfer",
}


def main() -> None:
    """Entry point."""
    command("audit", AuditConfig, _work)


def _work(config: AuditConfig) -> None:
    wanted = [audit_measurement(config, find_run(config.outputs, name, config.trust)) for name in config.runs]
    console = Console(file=sys.stdout, highlight=False)
    for folder, results in measured([measurement_job(one, runs) for one, runs in wanted]):
        verdict, reasons = judged(config, results)
        show({**results, "verdict": verdict, "reasons": reasons}, folder, console)


def show(results: Results, folder: JobFolder, console: Console) -> None:
    """Print the accuracies as a table, then the verdict and its reasons."""
    evidence = results["evidence"]
    (target,) = results["targets"]
    title = f"{results['methods'][target]}, run {target}: accuracy on {evidence['samples']} samples"
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
