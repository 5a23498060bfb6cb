"""The measured tables of lmsweep/margin/README.md: candidate classes, and the leak through batch norm.

Trains what is missing in the store (a few minutes on one core) and prints Markdown:
    LMSWEEP_DATA=... python -m benchmarks.margin_tables
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.compose import configured
from lmsweep.commands.jobs import run_training
from lmsweep.data import EvaluationBatches
from lmsweep.margin.batch_norm import per_sample_batch_norm
from lmsweep.margin.callback import last_linear
from lmsweep.margin.distance import linearised_margins
from lmsweep.margin.layers import capture, resolve_layers
from lmsweep.training.checkpoint import load_checkpoint
from lmsweep.training.run import prepare_run

DIGITS = ("data=digits", "model=digits_cnn", "trainer.max_steps=1000")
MNIST = ("data=mnist", "model=mnist_cnn", "model.width=0.5", "trainer.max_steps=800", "trainer.val_every=200")
RELEASED = (*MNIST, "model=mnist_cnn_released")
METHODS = (("method=xent",), ("method=margin",), ("method=margin", "margin.norm=inf"))
OPTIONS: dict[str, Any] = {"epsilon": 1e-6, "exact": False, "score": "logit"}
SAMPLES = 1000


def trained(*overrides: str) -> tuple[nn.Module, Tensor, Tensor, str]:
    """A trained network from the store, with test images and labels."""
    config = configured("trainer.batch_size=128", *overrides)
    folder, results = run_training(config)
    job = prepare_run(config)
    job.module.load_state_dict(cast(dict[str, Any], load_checkpoint(folder.checkpoint))["state_dict"])
    x, y = next(iter(EvaluationBatches(job.data.test, SAMPLES)))
    name = f"{config.data.name}, {results['method']} ({results['metrics']['test_accuracy']:.1%})"
    return job.module.network, x, y, name


def candidates() -> None:
    """How often the best k classes contain the class whose boundary is nearest."""
    print(
        "| model (test accuracy) | layers | "
        + " | ".join(f"score, k={k} | distance, k={k}" for k in (1, 2, 3))
        + " |"
    )
    print("|---|---|" + "---|" * 6)
    for setting in (DIGITS, MNIST):
        for method in METHODS:
            network, x, y, name = trained(*setting, *method)
            network.eval()
            names = resolve_layers(network, "everything")
            with capture(network, names) as captured:
                logits = network(x)
            layers = {n: captured.layers[n] for n in names}
            right = logits.argmax(1) == y
            every = linearised_margins(logits, y, layers, norm=2, top_k=None, **OPTIONS)
            nearest = every.classes.gather(1, every.distance.argmin(1))[right]  # (samples, layers)
            shares = []
            for k in (1, 2, 3):
                for last in (None, last_linear(network).weight):
                    chosen = linearised_margins(
                        logits, y, {"output": logits}, norm=2, top_k=k, last_layer=last, **OPTIONS
                    ).classes[right]
                    shares.append((nearest.unsqueeze(2) == chosen.unsqueeze(1)).any(2).float().mean(0))
            for label, pick in (("input", 0), ("hidden, mean", slice(1, -1))):
                cells = " | ".join(f"{share[pick].mean():.1%}" for share in shares)
                print(f"| {name} | {label} | {cells} |", flush=True)


def leak() -> None:
    """How far gradient norms through train-mode batch norm are from those of each sample alone."""
    print(
        "\n| model (test accuracy) | batch | layer | median error | 95th percentile |\n|---|---|---|---|---|"
    )
    for method in METHODS[:2]:
        network, images, targets, name = trained(*RELEASED, *method)
        network.train()
        names = resolve_layers(network, "everything")
        for size in (8, 32, 128):
            errors = []
            for start in range(0, SAMPLES - size + 1, size):
                x, y = images[start : start + size], targets[start : start + size]
                norms = []
                for clean in (False, True):
                    with capture(network, names) as captured:
                        if clean:
                            with per_sample_batch_norm(network):
                                logits = network(x)
                        else:
                            logits = network(x)
                    layers = {n: captured.layers[n] for n in names}
                    norms.append(
                        linearised_margins(logits, y, layers, norm=2, top_k=1, **OPTIONS).gradient_norm
                    )
                errors.append(((norms[0] - norms[1]).abs() / norms[1]).squeeze(1))
            for index, layer in enumerate(names):
                values = torch.cat(errors)[:, index]
                if values.max() > 1e-4:
                    middle, high = values.quantile(torch.tensor([0.5, 0.95])).tolist()
                    print(f"| {name} | {size} | {layer} | {middle:.1%} | {high:.1%} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    candidates()
    leak()
