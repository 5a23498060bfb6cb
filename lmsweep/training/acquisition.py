"""Active learning (Gal et al. 2017): train, score the images without a label, label the best ones, repeat."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from lmsweep.config.groups import AcquisitionConfig
from lmsweep.config.run import RunConfig
from lmsweep.data import Dataset, Split, StreamedSplit
from lmsweep.errors import ConfigError
from lmsweep.margin.temporary import evaluating
from lmsweep.seeds import derive_seed
from lmsweep.training.evaluate import batches_for

ACQUISITION = "lmsweep_acquisition"  # the key of what a checkpoint knows of earlier rounds
CURVE = "curve"  # the key of the curve, in results and beside what was measured
SPLITS = ("val", "test")
Measured = Mapping[str, Mapping[str, Any]]  # by selection of weights: best, last, ...


def bald_scores(probabilities: Tensor) -> Tensor:
    """The mutual information between an image's label and the weights, in nats, one number per image.

    `probabilities` of shape (passes, images, classes) are p(y = c | x, w_t), where w_t is the network with
    the units that the dropout of pass t leaves. I[y, w | x] = H[y | x] - E_w H[y | x, w] is large where each
    pass is sure of its answer and the passes disagree. Both terms come from the same passes, so the score is
    never negative; rounding is cut off.

    >>> sure_but_torn, unsure = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]
    >>> bald_scores(torch.tensor([sure_but_torn, unsure]).transpose(0, 1))
    tensor([0.6931, 0.0000])
    """
    return (max_entropy_scores(probabilities) - _entropy(probabilities).mean(0)).clamp_min(0)


def max_entropy_scores(probabilities: Tensor) -> Tensor:
    """The entropy H[y | x] of the mean prediction, in nats: large where the passes together are unsure."""
    return _entropy(probabilities.mean(0))


def _entropy(probabilities: Tensor) -> Tensor:
    return -torch.special.xlogy(probabilities, probabilities).sum(-1)  # 0 log 0 = 0


# How much a network would learn from the label of an image, by Monte-Carlo dropout.
SCORES: dict[str, Callable[[Tensor], Tensor]] = {"bald": bald_scores, "max_entropy": max_entropy_scores}


@dataclass
class Acquisition:
    """How far a run has come: the labelled images, and a point of its curve for every round that ended.

    Images are numbers in the order of the run's training images, of which fractions are prefixes.
    """

    labelled: Tensor
    curve: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, data: Dataset, options: AcquisitionConfig, known: Mapping[str, Any] | None) -> "Acquisition":
        """Where a checkpoint left off, or the start."""
        if known is not None:
            return cls(torch.tensor(known["labelled"]), list(known["curve"]))
        return cls(first_images(data.train.y, options.start_per_class))

    @property
    def round(self) -> int:
        """How many times images were added."""
        return len(self.curve)

    def known(self) -> dict[str, Any]:
        """What a checkpoint has to know; later rounds leave it as it is."""
        return {"labelled": self.labelled.tolist(), "curve": list(self.curve)}

    def record(self, measured: Measured, pool_size: int) -> None:
        """Add the round that ended to the curve: a point has the form of results, and says where it is."""
        before = self.curve[-1]["images"] if self.curve else 0
        images = len(self.labelled)
        self.curve.append(
            {
                "images": images,
                "at": {"data.fraction": images / pool_size},
                "added": self.labelled[before:].tolist(),
                "metrics": measured["best"],
                "selections": {name: values for name, values in measured.items() if name != "best"},
            }
        )

    def told(self) -> dict[str, float]:
        """The line of metrics.jsonl about the round that ended."""
        last = self.curve[-1]
        splits = {f"acquisition/{split}_accuracy": last["metrics"][f"{split}_accuracy"] for split in SPLITS}
        return {"acquisition/images": last["images"], **splits}

    def extend(self, data: Dataset, options: AcquisitionConfig, network: nn.Module, seed: int) -> None:
        """Label the images that score highest; `seed` is that of the run."""
        draw = torch.Generator().manual_seed(derive_seed(seed, f"acquisition/{self.round}/pool"))
        left = torch.ones(len(data.train), dtype=torch.bool)
        left[self.labelled] = False
        pool = left.nonzero().squeeze(1)
        pool = pool[torch.randperm(len(pool), generator=draw)]
        if options.score != "random":  # the draw is the random choice already
            pool = pool[: options.pool]
            passes_seed = derive_seed(seed, f"acquisition/{self.round}/dropout")
            drawn = dropout_probabilities(network, data.train.select(pool), options.passes, passes_seed)
            # Of equal scores the first drawn wins.
            pool = pool[SCORES[options.score](drawn).argsort(descending=True, stable=True)]
        self.labelled = torch.cat([self.labelled, pool[: options.added]])


def config_of_round(config: RunConfig, number: int) -> RunConfig:
    """The training of one round: another initialisation and other batches than in the other rounds.

    A round validates, which saves a checkpoint, at least once.
    """
    every = min(config.trainer.val_every, config.trainer.max_steps)
    trainer = config.trainer.model_copy(update={"val_every": every})
    return config.model_copy(
        update={"seed": derive_seed(config.seed, f"acquisition/{number}"), "trainer": trainer}
    )


def acquired(data: Dataset, curve: list[dict[str, Any]]) -> Dataset:
    """The data with the images that the last round of a curve was trained on."""
    return data.with_training(torch.tensor([image for point in curve for image in point["added"]]))


def first_images(labels: Tensor, per_class: int) -> Tensor:
    """The first `per_class` images of each class, in their order."""
    chosen = [(labels == label).nonzero().squeeze(1)[:per_class] for label in labels.unique()]
    return torch.cat(chosen).sort().values


@torch.inference_mode()
def dropout_probabilities(network: nn.Module, split: Split, passes: int, seed: int) -> Tensor:
    """The predictions (passes, images, classes) of a network whose dropout stays active, in double precision.

    Everything else, such as batch norm, is in evaluation mode. Every batch draws from a seed of its own, and
    the generators are left as they were.
    """
    device = next(network.parameters()).device
    found = []
    with evaluating(network), torch.random.fork_rng([device] if device.type == "cuda" else []):
        for layer in dropout_layers(network):
            layer.train()  # until `evaluating` restores all modes
        for number, (x, _) in enumerate(batches_for(network, split)):
            torch.manual_seed(derive_seed(seed, f"batch/{number}"))
            found.append(torch.stack([network(x).double().softmax(1) for _ in range(passes)]).cpu())
    return torch.cat(found, 1)


def dropout_layers(network: nn.Module) -> list[nn.Module]:
    """The layers that drop something."""
    return [layer for layer in network.modules() if isinstance(layer, _DropoutNd) and layer.p > 0]


def check_acquisition(options: AcquisitionConfig, data: Dataset, network: nn.Module, name: str) -> None:
    """Raise ConfigError for data (called `name`) or a network that cannot be used with an acquisition."""
    key = f"acquisition.score={options.score} is not allowed"
    if isinstance(data.train, StreamedSplit):
        raise ConfigError(f"{key} with data={name}, whose images stay on disk: use data in memory.")
    if options.score != "random" and not dropout_layers(network):
        raise ConfigError(
            f"{key} with a network that drops nothing, because its passes would all agree: set model.dropout "
            "to a number in (0, 1), or use acquisition.score=random."
        )
    counts = data.train.y.bincount(minlength=data.num_classes)
    if int(counts.min()) < options.start_per_class:
        raise ConfigError(
            f"acquisition.start_per_class={options.start_per_class} is not allowed: it must be at most "
            f"{int(counts.min())}, the images of the rarest class of data={name}."
        )
    images = options.images(data.num_classes)
    if images > len(data.train):
        raise ConfigError(
            f"acquisition.rounds={options.rounds} of {options.added} images is not allowed: they would be "
            f"{images} with those of the start, and data={name} has {len(data.train)} for training."
        )
