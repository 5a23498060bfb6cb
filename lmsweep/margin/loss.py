"""The margin loss (Eq. 10 of the paper), and what its terms say about training."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from lmsweep.margin.distance import Layers, Margins, filled, linearised_margins
from lmsweep.margin.options import check_options


def margin_loss(
    logits: Tensor,
    targets: Tensor,
    layers: Layers,
    *,
    norm: float | str = 2.0,
    gamma: float | Sequence[float] = 1.0,
    top_k: int | None = None,
    aggregation: Literal["max", "sum"] = "max",
    epsilon: float = 1e-6,
    clip: float | None = None,
    exact: bool = False,
    score: Literal["logit", "softmax"] = "logit",
    layer_reduction: Literal["sum", "mean"] = "sum",
    layer_weights: Sequence[float] | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
    last_layer: Tensor | None = None,
) -> Tensor:
    """Penalise samples that lie nearer than `gamma` to a class boundary, at each of the given layers.

    Args:
        logits: (batch, classes), computed from every one of `layers`.
        targets: (batch,) class indices.
        layers: tensors the logits were computed from, the input among them if wanted (it must require
            grad before the forward pass). A mapping gives them names for error messages.
        norm: p >= 1 or "inf", the norm distances are measured in; the gradient is measured in its dual.
        gamma: the distance asked for, in the unit of the layer; a number, or one per layer.
        top_k: how many other classes to compare with, best scored first; None for all of them. Each costs
            one backward sweep.
        aggregation: over classes.
        epsilon: added to the gradient norm.
        clip: the loss per class is clipped to [0, clip * gamma].
        exact: differentiate through the gradient norm as well (second order), instead of treating it as a
            constant.
        score: what a class boundary is a tie of.
        layer_reduction: over layers.
        layer_weights: each divides the gradient norm of its layer.
        reduction: over the batch.
        last_layer: (classes, features), the weight of the last linear layer. When given, the `top_k`
            classes are those whose boundary is nearest at that layer's input, rather than the best scored.

    Returns:
        A scalar, or one value per sample with `reduction="none"`.
    """
    check_options(
        norm=norm,
        gamma=gamma,
        top_k=top_k,
        aggregation=aggregation,
        epsilon=epsilon,
        clip=clip,
        score=score,
        layer_reduction=layer_reduction,
        layer_weights=layer_weights,
        reduction=reduction,
    )
    margins = linearised_margins(
        logits,
        targets,
        layers,
        norm=norm,
        top_k=top_k,
        epsilon=epsilon,
        exact=exact,
        score=score,
        layer_weights=layer_weights,
        last_layer=last_layer,
    )
    per_layer = layer_losses(margins, gamma=gamma, aggregation=aggregation, clip=clip)
    per_sample = sample_losses(per_layer, layer_reduction)
    if reduction == "none":
        return per_sample
    return per_sample.mean() if reduction == "mean" else per_sample.sum()


def layer_losses(
    margins: Margins,
    *,
    gamma: float | Sequence[float],
    aggregation: Literal["max", "sum"],
    clip: float | None,
) -> Tensor:
    """The hinge on the distances, aggregated over classes: (batch, layers)."""
    goal = _per_layer(gamma, margins.distance)
    per_class = (goal - margins.distance).clamp_min(0.0)
    if clip is not None:
        per_class = torch.minimum(per_class, clip * goal)
    return per_class.amax(1) if aggregation == "max" else per_class.sum(1)


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
