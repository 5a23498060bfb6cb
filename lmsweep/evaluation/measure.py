"""The measurements themselves: stored runs are loaded, attacked, audited and measured. Imports torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from lmsweep import attacks
from lmsweep.attacks.measures.curve import Part, Remember
from lmsweep.attacks.measures.distances import compare_distances
from lmsweep.config.evaluation import (
    REGIONS_FILE,
    AuditConfig,
    DistancesConfig,
    EvaluationConfig,
    Measurement,
    OwnAuditConfig,
    StoredRunsConfig,
)
from lmsweep.data import Dataset, EvaluationBatches, Split
from lmsweep.errors import ConfigError, UserError
from lmsweep.evaluation.jobs import PICTURE
from lmsweep.evaluation.runs import Runs, StoredRun, check_types
from lmsweep.store.folder import JobFolder
from lmsweep.training.build import build_data, build_module
from lmsweep.training.checkpoint import FINISHED, load_or_set_aside

RESOLUTION = 200
AROUND = 0.08  # of the data's width, on every side


@dataclass(frozen=True)
class Checkpoint:
    """A trained network, and the data it was trained and is tested on."""

    network: nn.Module
    data: Dataset


class TrainedNetwork(nn.Module):
    """A trained network for images in [0, 1], or of 0 to 255 as uint8; calling it gives logits."""

    def __init__(self, network: nn.Module, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.input_shape = input_shape

    def forward(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        logits: Tensor = self.network(images)
        return logits

    @torch.inference_mode()
    def predict(self, images: ArrayLike) -> Tensor:
        """The class of each image; arrays may leave out the channel when there is one only."""
        x = torch.as_tensor(images)
        wanted = ", ".join(map(str, self.input_shape))
        if x.shape[1:] == self.input_shape[1:] and self.input_shape[:1] == (1,):
            x = x.unsqueeze(1)
        if x.ndim != len(self.input_shape) + 1 or x.shape[1:] != self.input_shape:
            raise ValueError(f"images have the shape {tuple(x.shape)}: it must be (n, {wanted})")
        if x.dtype != torch.uint8 and not bool(((x >= 0) & (x <= 1)).all()):
            raise ValueError("images have values outside [0, 1]: scale them, or give uint8 (0 to 255)")
        split = Split(x, torch.zeros(len(x), dtype=torch.long))
        weights = next(self.parameters())
        parts = [self(part.to(weights)).argmax(1) for part, _ in EvaluationBatches(split, 256)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def load_run(run: StoredRun, root: str, device: torch.device, which: str = "best") -> Checkpoint:
    """The best or the last weights of a finished run, in the network they belong to.

    Data sets are read from `root`: where they were when the run was trained says nothing about here and now.
    """
    path = run.folder.checkpoint if which == "best" else run.folder.last
    state = load_or_set_aside(path)
    if state is None or FINISHED not in state:
        raise UserError(f"Run {run.id} has no weights in {path}; train it again with force=true.")
    if run.trust is not None:
        check_types(run.config, run.trust)
    elsewhere = run.config.data.model_copy(update={"root": root})
    plain = run.config.trainer.model_copy(update={"compile": False})  # nothing is compiled to be measured
    config = run.config.model_copy(update={"data": elsewhere, "trainer": plain})
    data = build_data(config)
    module = build_module(config, data)
    module.load_state_dict(state["state_dict"])
    return Checkpoint(module.network.eval().to(device), data)


def device_of(config: StoredRunsConfig | OwnAuditConfig) -> torch.device:
    """Where to compute."""
    torch.set_num_threads(config.threads)
    if config.accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigError("accelerator=gpu needs a GPU that torch can use; use auto or cpu.")
    gpu = config.accelerator != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


def _load(config: StoredRunsConfig, run: StoredRun) -> Checkpoint:
    return load_run(run, config.root, device_of(config), config.checkpoint)


def batches_of(config: StoredRunsConfig, data: Dataset) -> EvaluationBatches:
    """The samples to evaluate on, in the order they are stored in."""
    split: Split = getattr(data, config.split)
    if config.samples is not None and config.samples < len(split):
        split = split.select(torch.arange(config.samples))
    return EvaluationBatches(split, config.batch_size)


def remembering(folder: JobFolder) -> Remember:
    """Keep each part in the job's folder, so that a measurement that was killed goes on where it was."""
    found: dict[str, Part] = load_or_set_aside(folder.last, folder.holding) or {}

    def remember(name: str, find: Callable[[], Part]) -> Part:
        if name not in found:
            found[name] = find()
            with folder.replacing(folder.last.name) as temporary:
                torch.save(found, temporary)
        return found[name]

    return remember


def measure_attack(
    measurement: Measurement, config: EvaluationConfig, runs: Runs, remember: Remember
) -> dict[str, Any]:
    """The accuracy of every target over the attack's strengths."""
    attack, source = config.attack, _load(config, runs[measurement.source or measurement.targets[0]])
    batches = batches_of(config, source.data)
    if measurement.source is None:
        stop = measurement.frozen["attack"].get("early_stop", False)
        found = attacks.attack_curve(
            source.network, batches, attack, seed=config.seed, early_stop=stop, remember=remember
        )
        curves = {measurement.targets[0]: found}
    else:
        networks = {
            name: source.network if name == measurement.source else _load(config, runs[name]).network
            for name in measurement.targets
        }
        curves = attacks.transfer_curves(
            source.network, networks, batches, attack, seed=config.seed, remember=remember
        )
    return {"unit": attack.unit, "curves": {name: curve.to_dict() for name, curve in curves.items()}}


def measure_audit(
    measurement: Measurement, config: AuditConfig, runs: Runs, remember: Remember
) -> dict[str, Any]:
    """Run every attack of the audit on the target."""
    checkpoint = _load(config, runs[measurement.targets[0]])
    source = _load(config, runs[measurement.source]) if measurement.source else None
    keys = config.model_dump(include={"epsilons", "alpha", "unbounded_alpha", "seed"})
    evidence = attacks.masking.measure(
        checkpoint.network,
        batches_of(config, checkpoint.data),
        attack=config.attack,
        source=source.network if source else None,
        tell=partial(print, flush=True),
        remember=remember,
        **keys,
    )
    return {"evidence": evidence.to_dict()}


def measure_distances(
    measurement: Measurement, config: DistancesConfig, runs: Runs, folder: JobFolder
) -> dict[str, Any]:
    """Both distances in every norm, and a picture of them in the job's folder."""
    (target,) = measurement.targets
    checkpoint = _load(config, runs[target])
    batches = batches_of(config, checkpoint.data)
    compare = partial(compare_distances, checkpoint.network, batches, steps=config.steps, seed=config.seed)
    agreements = [compare(norm=norm) for norm in config.norms]
    title = f"{runs[target].config.method_name()}, run {target}"
    with folder.replacing(PICTURE) as temporary:
        draw_agreement(agreements, temporary, title)
    return {"distances": agreements}


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
        panel.set(xlabel="linearised distance, Eq. 7", ylabel="smallest perturbation found")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150, format="png")


@torch.inference_mode()
def measure_regions(measurement: Measurement, runs: Runs, folder: JobFolder) -> dict[str, float]:
    """Score a grid around the data: above 0 the network decides for class 1."""
    config, (target,) = measurement.config, measurement.targets
    loaded = _load(config, runs[target])
    train, test = loaded.data.train, loaded.data.test
    everything = torch.cat([train.x, test.x]).flatten(1)
    low, high = everything.amin(0), everything.amax(0)
    low, high = low - AROUND * (high - low), high + AROUND * (high - low)
    x, y = (torch.linspace(float(a), float(b), RESOLUTION) for a, b in zip(low, high, strict=True))
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    logits = loaded.network(grid.reshape(-1, *train.x.shape[1:]))
    score = (logits[:, 1] - logits[:, 0]).reshape(RESOLUTION, RESOLUTION)
    with folder.replacing(REGIONS_FILE) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            x=x.numpy(),
            y=y.numpy(),
            score=score.numpy(),
            train_points=train.x.flatten(1).numpy(),
            train_labels=train.y.numpy(),
            test_points=test.x.flatten(1).numpy(),
            test_labels=test.y.numpy(),
        )
    right = (loaded.network(test.x).argmax(1) == test.y).float().mean()
    return {"test_accuracy": float(right)}
