"""Where the networks of figure 1 decide for which class. Imports torch."""

import os

import numpy as np
import pandas as pd
import torch

from lmsweep.config.sweeps import Sweep
from lmsweep.evaluation.checkpoints import load_run
from lmsweep.evaluation.runs import StoredRun
from lmsweep.figures.drawing.regions import Regions
from lmsweep.figures.spec import FigureSpec
from lmsweep.store.store import Store

RESOLUTION = 200
AROUND = 0.08  # of the data's width, on every side


def regions(sweep: Sweep, spec: FigureSpec, points: pd.DataFrame) -> list[Regions]:
    """The first seed of each method, in the order of the figure."""
    first = points.sort_values("seed").drop_duplicates("method").set_index("method")["run"]
    root = os.environ.get("LMSWEEP_DATA", "data")
    found = []
    for method in spec.methods:
        if method in first.index:
            name = str(first[method])
            run = StoredRun(Store(sweep.outputs).run(name), sweep.runs[name])
            found.append(_regions(method, run, root))
    return found


@torch.inference_mode()
def _regions(method: str, run: StoredRun, root: str) -> Regions:
    torch.set_num_threads(1)
    loaded = load_run(run, root, torch.device("cpu"))
    train, test = loaded.data.train, loaded.data.test
    everything = torch.cat([train.x, test.x]).flatten(1)
    low, high = everything.amin(0), everything.amax(0)
    low, high = low - AROUND * (high - low), high + AROUND * (high - low)
    x, y = (torch.linspace(float(a), float(b), RESOLUTION) for a, b in zip(low, high, strict=True))
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    logits = loaded.network(grid.reshape(-1, *train.x.shape[1:]))
    score = (logits[:, 1] - logits[:, 0]).reshape(RESOLUTION, RESOLUTION)
    right = (loaded.network(test.x).argmax(1) == test.y).float().mean()

    def plain(tensor: torch.Tensor) -> np.ndarray:
        return tensor.flatten(1).numpy() if tensor.dim() > 1 else tensor.numpy()

    return Regions(
        method=method,
        x=x.numpy(),
        y=y.numpy(),
        score=score.numpy(),
        train_points=plain(train.x),
        train_labels=plain(train.y),
        test_points=plain(test.x),
        test_labels=plain(test.y),
        test_accuracy=float(right),
    )
