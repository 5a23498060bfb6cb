"""Where a network of two inputs decides for which class (Figure 1 of the paper)."""

import numpy as np
import torch

from lmsweep.config.measurement import REGIONS_FILE, Measurement
from lmsweep.evaluation.checkpoints import device_of, load_run
from lmsweep.evaluation.jobs import Runs
from lmsweep.store.folder import JobFolder

RESOLUTION = 200
AROUND = 0.08  # of the data's width, on every side


@torch.inference_mode()
def measure_regions(measurement: Measurement, runs: Runs, folder: JobFolder) -> dict[str, float]:
    """Score a grid around the data: above 0 the network decides for class 1."""
    config, (target,) = measurement.config, measurement.targets
    loaded = load_run(runs[target], config.root, device_of(config))
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
