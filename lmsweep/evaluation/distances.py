"""Linearised distances of stored runs against those that attacks find."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmsweep.config.evaluation import DistancesConfig
from lmsweep.evaluation.jobs import Job, complete
from lmsweep.evaluation.runs import StoredRun
from lmsweep.store.store import RunFolder
from lmsweep.sweep.execute import Results

PICTURE = "distances.png"


def draw_agreement(agreements: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """One scatter per norm, with the diagonal on which the linearisation would be exact."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(agreements), 4.2), layout="constrained")
    panels = figure.subplots(1, len(agreements), squeeze=False)[0]
    for panel, values in zip(panels, agreements, strict=True):
        panel.scatter(values["linearised"], values["found"], s=9, alpha=0.6, linewidths=0)
        panel.axline((0, 0), slope=1, color="0.5", linewidth=1)
        rank = values["rank_correlation"]
        shown = "too few samples" if rank is None else f"rank correlation {rank:.2f}"
        panel.set_title(f"{values['norm']}: {shown}, n = {values['samples']}", fontsize=10)
        panel.set_xlabel("linearised distance, Eq. 7")
        panel.set_ylabel("smallest perturbation found")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)


def _measure(config: DistancesConfig, jobs: list[Job], folders: list[RunFolder]) -> list[Results]:
    from lmsweep.attacks.distances import compare_distances
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    device = device_of(config)
    results = []
    for job, folder in zip(jobs, folders, strict=True):
        checkpoint = load_run(job.target, config.root, device)
        batches = batches_of(config, checkpoint.data)
        agreements = [
            compare_distances(
                checkpoint.network, batches, norm=norm, steps=config.steps, seed=config.seed
            ).to_dict()
            for norm in config.norms
        ]
        name = job.target.config.method_name()
        draw_agreement(agreements, folder.path / PICTURE, f"{name}, run {job.target.id}")
        results.append({"distances": agreements})
    return results


def distances(config: DistancesConfig, run: StoredRun) -> tuple[RunFolder, Results]:
    """Measure one run, or read what was measured before."""
    job = Job("distances", run, None, config.identity_dict())
    ((folder, results),) = complete(config.outputs, [job], lambda jobs, fs: _measure(config, jobs, fs))
    return folder, results
