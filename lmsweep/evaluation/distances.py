"""Linearised distances of stored runs against those that attacks find."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmsweep.config.evaluation import DistancesConfig
from lmsweep.config.measurement import Measurement
from lmsweep.evaluation.jobs import Runs
from lmsweep.store.folder import JobFolder

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
    figure.savefig(path, dpi=150, format="png")


def measure_distances(measurement: Measurement, runs: Runs, folder: JobFolder) -> dict[str, Any]:
    """Both distances in every norm, and a picture of them in the job's folder."""
    from lmsweep.attacks.distances import compare_distances
    from lmsweep.evaluation.checkpoints import batches_of, device_of, load_run

    config, (target,) = measurement.config, measurement.targets
    if not isinstance(config, DistancesConfig):
        raise TypeError(f"{type(config).__name__} describes no distances")
    checkpoint = load_run(runs[target], config.root, device_of(config))
    batches = batches_of(config, checkpoint.data)
    agreements = [
        compare_distances(
            checkpoint.network, batches, norm=norm, steps=config.steps, seed=config.seed
        ).to_dict()
        for norm in config.norms
    ]
    title = f"{runs[target].config.method_name()}, run {target}"
    with folder.replacing(PICTURE) as temporary:
        draw_agreement(agreements, temporary, title)
    return {"distances": agreements}
