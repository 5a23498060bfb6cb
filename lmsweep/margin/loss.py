"""The margin loss (Eq. 10 of the paper), and what its terms say about training."""

from collections.abc import Mapping, Sequence
from typing import Literal, Unpack

import torch
from torch import Tensor

from lmsweep.margin.distance import Layers, Margins, filled, linearised_margins, sampled_classes
from lmsweep.margin.options import LossOptions, distance_part, sample_size, takes


@takes(LossOptions)
def margin_loss(
    logits: Tensor,
    targets: Tensor,
    layers: Layers,
    *,
    last_layer: Tensor | None = None,
    generator: torch.Generator | None = None,
    **options: Unpack[LossOptions],
) -> Tensor:
    """Penalise samples that lie nearer than `gamma` to a class boundary, at each of the given layers.

    Args:
        logits: (batch, classes), computed from every one of `layers`.
        targets: (batch,) class indices. One that is no class is a ValueError; on a GPU, which is not asked
            in every step, torch's own assertion.
        layers: tensors the logits were computed from, the input among them if wanted (it must require
            grad before the forward pass). A mapping gives them names for error messages.
        last_layer: (classes, features), the weight of the last linear layer. When given, the `top_k`
            classes are those whose boundary is nearest at that layer's input, rather than the best scored.
        generator: on the CPU. When given, the `top_k` classes are drawn from it at random for every sample,
            and the sum over them is scaled so that its mean over draws is the sum over all classes.

    Returns:
        A scalar, or one value per sample with `reduction="none"`.
    """
    sampled = None
    if generator is not None:
        sampled = sampled_classes(targets, logits.shape[1], sample_size(options), generator)
    margins = linearised_margins(
        logits, targets, layers, last_layer=last_layer, sampled=sampled, **distance_part(options)
    )
    per_sample = sample_losses(layer_losses(margins, **options), options["layer_reduction"])
    if options["reduction"] == "none":
        return per_sample
    return per_sample.mean() if options["reduction"] == "mean" else per_sample.sum()


def layer_losses(
    margins: Margins,
    *,
    gamma: float | Sequence[float],
    aggregation: Literal["max", "sum"],
    clip: float | None,
    **_: object,
) -> Tensor:
    """The hinge on the distances, aggregated over classes: (batch, layers); other options are not for it."""
    goal = _per_layer(gamma, margins.distance)
    per_class = (goal - margins.distance).clamp_min(0.0)
    if clip is not None:
        per_class = torch.minimum(per_class, clip * goal)
    return per_class.amax(1) if aggregation == "max" else margins.scale * per_class.sum(1)


def sample_losses(per_layer: Tensor, layer_reduction: Literal["sum", "mean"]) -> Tensor:
    """The losses of all layers together: (batch,)."""
    return per_layer.sum(1) if layer_reduction == "sum" else per_layer.mean(1)


@torch.no_grad()
def telemetry(
    margins: Margins,
    logits: Tensor,
    names: Sequence[str],
    *,
    gamma: float | Sequence[float],
    epsilon: float,
    clip: float | None,
    **_: object,
) -> Mapping[str, Tensor]:
    """Say, per layer, whether the loss still has something to act on. All values stay on the device.

    `distance` is the mean distance to the nearest of the measured boundaries; `above_gamma` the fraction of
    samples whose nearest boundary is farther than gamma (they push no more); `at_clip` of samples with a
    class at the clip (they push no more either, though they should); `flat` of samples with a gradient norm
    below epsilon (their distance is fake). `saturated` is the fraction of softmax rows that are exactly 1.
    """
    goal = _per_layer(gamma, margins.distance)
    nearest = margins.distance.amin(1)
    rows = {
        "distance": nearest.mean(0),
        "above_gamma": (nearest > goal).float().mean(0),
        "flat": (margins.gradient_norm.amin(1) < epsilon).float().mean(0),
    }
    if clip is not None:
        rows["at_clip"] = (goal - nearest >= clip * goal).float().mean(0)
    values = {f"{key}/{name}": row[i] for key, row in rows.items() for i, name in enumerate(names)}
    values["saturated"] = (logits.float().softmax(1).amax(1) == 1).float().mean()
    return values


def _per_layer(gamma: float | Sequence[float], distance: Tensor) -> Tensor:
    if not isinstance(gamma, Sequence):
        return torch.full_like(distance[0, 0], gamma)
    if len(gamma) != distance.shape[2]:
        raise ValueError(f"gamma has {len(gamma)} values for {distance.shape[2]} layers")
    return filled(gamma, distance)
