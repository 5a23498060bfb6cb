"""The linearised distance to every class boundary, measured at any layer (Eqs. 7 and 10 of the paper)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from lmsweep.margin.batch_norm import class_gradients
from lmsweep.margin.options import NORM, DistanceOptions, takes
from lmsweep.seeds import ALL, Share, to_device

Layers = Sequence[Tensor] | Mapping[str, Tensor]

# Largest number of classes whose gradients are alive at once when backward passes are batched (CUDA).
CLASSES_AT_ONCE = 16
# A power of two that keeps small float16 gradients out of the subnormal range on their way down.
HALF_SCALE = 128.0


class Margins(NamedTuple):
    """Signed distances and what they were made of; B samples, K classes, L layers."""

    distance: Tensor  # (B, K, L), positive on the correct side
    gradient_norm: Tensor  # (B, K, L), constant unless exact
    classes: Tensor  # (B, K), the class each distance is measured against
    scale: float = 1.0  # of a sum over the classes: others / K for sampled ones


@takes(DistanceOptions)
def margin_distance(
    logits: Tensor,
    targets: Tensor,
    layers: Layers,
    *,
    last_layer: Tensor | None = None,
    **options: Unpack[DistanceOptions],
) -> Tensor:
    """Return the signed linearised distance of every sample to every class boundary at every layer.

    The result has shape (batch, classes, layers). It is positive where the sample lies on its target's
    side, and infinite where nothing was measured: at the target itself and, with `top_k`, at the classes
    not chosen. So `.amin(1)` is the distance to the nearest boundary. The tensors are those of `margin_loss`.
    """
    margins = linearised_margins(logits, targets, layers, last_layer=last_layer, **options)
    depth = margins.distance.shape[2]
    everywhere = margins.distance.new_full((*logits.shape, depth), torch.inf)
    return everywhere.scatter(1, margins.classes.unsqueeze(2).expand(-1, -1, depth), margins.distance)


@takes(DistanceOptions)
def linearised_margins(
    logits: Tensor,
    targets: Tensor,
    layers: Layers,
    *,
    last_layer: Tensor | None = None,
    sampled: Tensor | None = None,
    batched: bool | None = None,
    **options: Unpack[DistanceOptions],
) -> Margins:
    """Compute Eq. 7 at each layer for the chosen classes; `margin_loss` and telemetry share the result.

    One backward pass per class gives the gradients of all layers at once: samples are independent, so the
    batch is summed, and autograd passes every layer on its way down. `sampled` (batch, k) are the classes
    of `sampled_classes` to compare with, in place of the `top_k`. `batched` lets one pass serve several
    classes; None does so where this is faster.
    """
    layer_weights, exact = options["layer_weights"], options["exact"]
    if not isinstance(layers, Mapping):
        layers = {f"layers[{i}]": layer for i, layer in enumerate(layers)}
    _check(logits, targets, layers, layer_weights, last_layer)
    tensors = list(layers.values())
    q = dual_exponent(options["norm"])
    with _full_precision(logits.device.type):
        scores = _scores(logits, options["score"])
        true = _of_targets(scores, targets)
        # By logits even for softmax: the order is the same, and where softmax saturates they still have one.
        ranked = _scores(logits.detach(), "logit")
        classes = sampled
        if classes is None:
            classes = _candidate_classes(ranked, targets, options["top_k"], last_layer, q)
        difference = true - scores.gather(1, classes)

        def norms(gradients: Sequence[Tensor | None]) -> Tensor:
            for name, gradient in zip(layers, gradients, strict=True):
                if gradient is None:
                    raise ValueError(f"the logits do not depend on {name}: choose layers that lead to them")
            return torch.stack([sample_norm(g, q) for g in gradients if g is not None], dim=1)

        # Where the network runs in float16, so do its class gradients.
        lifted = HALF_SCALE if logits.dtype == torch.float16 else 1.0
        directions = _directions(scores, targets, classes, lifted)
        batched = logits.is_cuda if batched is None else batched
        if batched and len(classes[0]) > 1 and not exact:
            gradient_norm = _class_gradients_at_once(scores, tensors, directions, norms)
        else:
            # No name for a class's gradients, so that they are gone before those of the next class come.
            per_class = [norms(_class_gradients(scores, tensors, v, exact)) for v in directions]
            gradient_norm = torch.stack(per_class, dim=1)
        if lifted != 1:
            # An overflowed gradient says nothing but "steep": distance 0 and no push, rather than NaN.
            gradient_norm = torch.nan_to_num(gradient_norm / lifted, nan=torch.inf, posinf=torch.inf)
        if layer_weights is not None:
            gradient_norm = gradient_norm / filled(layer_weights, gradient_norm)
        distance = difference.unsqueeze(2) / (options["epsilon"] + gradient_norm)
    scale = 1.0 if sampled is None else (logits.shape[1] - 1) / sampled.shape[1]
    return Margins(distance, gradient_norm, classes, scale)


def sampled_classes(
    targets: Tensor, count: int, k: int, generator: torch.Generator, share: Share = ALL
) -> Tensor:
    """Draw k of the `count - 1` other classes for every sample, all with the same chance, none twice.

    Each class is drawn with probability k / (count - 1), so a sum over the drawn ones times (count - 1) / k
    has the sum over all others as its mean, and its gradient has theirs, for fixed weights: the mean of a sum
    is linear, whatever the terms are. `targets` may be a `share` of the batch; what is drawn is the whole's.
    """
    order = torch.rand(share.whole(len(targets)), count - 1, generator=generator)
    shift = share.of(order.topk(min(k, count - 1), dim=1).indices) + 1
    return (targets.unsqueeze(1) + to_device(shift, targets.device)) % count


def _full_precision(device: str) -> AbstractContextManager[object]:
    # Devices that compute nothing ("meta") know no lower precision either.
    known = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if known else nullcontext()


def filled(values: Sequence[float], like: Tensor) -> Tensor:
    """A vector of numbers, written on the device itself: a copy from the host would stop it in every step."""
    return torch.stack([like.new_full((), value) for value in values])


def _scores(logits: Tensor, score: str) -> Tensor:
    precise = logits if logits.dtype == torch.float64 else logits.float()
    return F.softmax(precise, dim=1) if score == "softmax" else precise


def _of_targets(scores: Tensor, targets: Tensor) -> Tensor:
    try:
        return scores.gather(1, targets.unsqueeze(1))
    except RuntimeError:  # of a CPU; a GPU tells later, and to ask would stop it in every step
        count = scores.shape[1]
        wrong = [] if targets.is_cuda else targets[(targets < 0) | (targets >= count)].tolist()
        if not wrong:
            raise
        raise ValueError(
            f"targets has the class {wrong[0]}, and the logits have {count} classes: "
            f"class indices must lie between 0 and {count - 1}"
        ) from None


def _candidate_classes(
    scores: Tensor, targets: Tensor, top_k: int | None, last_layer: Tensor | None, q: float
) -> Tensor:
    """The classes to compare with the target: all others, the best scored, or the nearest at the end."""
    count = scores.shape[1]
    others = count - 1
    if top_k is None or top_k >= others:
        return (targets.unsqueeze(1) + torch.arange(1, count, device=targets.device)) % count
    if last_layer is not None:
        rows = last_layer.detach().to(scores.dtype)
        gaps = torch.cdist(rows[targets], rows, p=q)
        true = scores.gather(1, targets.unsqueeze(1))
        # Nearest boundary first, at the input of the last layer, where the network is exactly linear.
        scores = (scores - true) / gaps.clamp_min(torch.finfo(scores.dtype).tiny)
    return scores.scatter(1, targets.unsqueeze(1), -torch.inf).topk(top_k, dim=1).indices


def _directions(scores: Tensor, targets: Tensor, classes: Tensor, scale: float) -> Iterator[Tensor]:
    """The gradient of the score difference with respect to the scores, for each chosen class in turn."""
    for column in classes.unbind(1):
        direction = torch.zeros_like(scores)
        direction.scatter_(1, targets.unsqueeze(1), scale)
        yield direction.scatter_(1, column.unsqueeze(1), -scale)


def _class_gradients(
    scores: Tensor, layers: list[Tensor], direction: Tensor, exact: bool
) -> tuple[Tensor | None, ...]:
    with class_gradients():
        return torch.autograd.grad(
            scores, layers, direction, retain_graph=True, create_graph=exact, allow_unused=True
        )


def _class_gradients_at_once(
    scores: Tensor,
    layers: list[Tensor],
    directions: Iterator[Tensor],
    norms: Callable[[Sequence[Tensor | None]], Tensor],
) -> Tensor:
    """The same backward passes in groups: one kernel launch serves several classes.

    By torch.func's vmap, which knows convolutions, pooling and batch norm; `is_grads_batched` loops over
    classes in each of them.
    """
    measure = torch.func.vmap(lambda v: norms(_class_gradients(scores, layers, v, exact=False)), out_dims=1)
    groups = torch.stack(list(directions)).split(CLASSES_AT_ONCE)
    return torch.cat([measure(group) for group in groups], dim=1)


def _check(
    logits: Tensor,
    targets: Tensor,
    layers: Mapping[str, Tensor],
    layer_weights: Sequence[float] | None,
    last_layer: Tensor | None,
) -> None:
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"logits of shape {tuple(logits.shape)}: expected (batch, at least two classes)")
    if targets.shape != logits.shape[:1] or targets.dtype != torch.int64:
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} and type {targets.dtype}: "
            f"expected {len(logits)} class indices of type torch.int64"
        )
    if not layers:
        raise ValueError("layers is empty: give at least one tensor that the logits were computed from")
    if last_layer is not None and len(last_layer) != logits.shape[1]:
        raise ValueError(f"last_layer has {len(last_layer)} rows for {logits.shape[1]} classes")
    if layer_weights is not None and len(layer_weights) != len(layers):
        raise ValueError(f"layer_weights has {len(layer_weights)} values for {len(layers)} layers")
    for name, layer in layers.items():
        if not layer.requires_grad:
            raise ValueError(f"{name} does not require grad: call requires_grad_() on it before the forward")
        if len(layer) != len(logits):
            raise ValueError(f"{name} holds {len(layer)} samples and the logits {len(logits)}")


def dual_exponent(norm: float | str) -> float:
    """Return q with 1/p + 1/q = 1 for `norm` p >= 1 or "inf" (Eq. 7 of the paper)."""
    p = NORM.check("norm", norm)
    if p == 1:
        return math.inf
    return 1.0 if math.isinf(p) else p / (p - 1)


def sample_norm(gradient: Tensor, q: float) -> Tensor:
    """Return the l_q norm of each sample's gradient, in float32 or better, with subgradient 0 at zero."""
    gradient = gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.float()
    # Over all dimensions at once, because a gradient in channels-last order is copied to be flattened.
    every = tuple(range(1, gradient.ndim))
    if q == 2:
        return torch.linalg.vector_norm(gradient, dim=every)
    if q in (1.0, math.inf):  # 7 and 20 times faster on CPUs than torch's own norms
        return gradient.abs().sum(every) if q == 1 else gradient.abs().amax(every)
    flat = gradient.flatten(1)
    # Powers of small gradients underflow (q = 11 for p = 1.1), so the largest entry is taken out first.
    # It is a constant factor of a homogeneous function: the derivative is right without its own.
    scale = flat.detach().abs().amax(dim=1, keepdim=True)
    zero = scale == 0
    # The inner `where` keeps the infinite slope of the root at 0 out of the graph.
    powers = (flat / scale.masked_fill(zero, 1.0)).abs().pow(q).sum(dim=1, keepdim=True)
    root = torch.where(zero, 1.0, powers).pow(1 / q)
    return torch.where(zero, 0.0, root * scale).squeeze(1)
