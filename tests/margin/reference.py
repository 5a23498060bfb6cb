"""The paper's Eq. 10 as a triple loop over samples, classes and layers: slow, and plainly right."""

import math

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Two hidden layers whose activations are returned beside the logits."""

    def __init__(self, inputs: int = 5, hidden: int = 7, classes: int = 5, activation: type = nn.Tanh):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(inputs, hidden), activation())
        self.second = nn.Sequential(nn.Linear(hidden, hidden), activation())
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        one = self.first(x)
        two = self.second(one)
        logits = self.out(two)
        return logits, [x, one, two, logits]


def q_norm(v: Tensor, p: float) -> Tensor:
    """The dual norm, from its definition."""
    v = v.flatten().abs()
    if p == 1:
        return v.max()
    if math.isinf(p):
        return v.sum()
    if not v.any():
        return v.sum()  # the subgradient 0 that the root would not give at zero
    q = p / (p - 1)
    return (v**q).sum() ** (1 / q)


def naive_margin_loss(
    net: Net,
    x: Tensor,
    y: Tensor,
    *,
    norm: float,
    gamma: list[float],
    top_k: int | None,
    aggregation: str,
    epsilon: float,
    clip: float | None,
    exact: bool,
    score: str,
    layer_reduction: str,
    layer_weights: list[float] | None,
) -> Tensor:
    """The mean over samples; every gradient is a call of its own on a batch of one."""
    total = torch.zeros((), dtype=x.dtype)
    for sample, target in zip(x, y.tolist(), strict=True):
        logits, layers = net(sample.unsqueeze(0).requires_grad_())
        scores = (logits.softmax(1) if score == "softmax" else logits)[0]
        others = [i for i in range(len(scores)) if i != target]
        if top_k is not None:
            others = sorted(others, key=lambda i: -scores[i].item())[:top_k]
        per_layer = []
        for index, layer in enumerate(layers):
            per_class = []
            for i in others:
                difference = scores[i] - scores[target]
                (gradient,) = torch.autograd.grad(difference, layer, retain_graph=True, create_graph=exact)
                length = q_norm(gradient, norm)
                length = length if exact else length.detach()
                if layer_weights:
                    length = length / layer_weights[index]
                term = torch.clamp(gamma[index] + difference / (epsilon + length), min=0)
                if clip is not None:
                    term = torch.clamp(term, max=clip * gamma[index])
                per_class.append(term)
            stacked = torch.stack(per_class)
            per_layer.append(stacked.max() if aggregation == "max" else stacked.sum())
        layer_values = torch.stack(per_layer)
        total = total + (layer_values.sum() if layer_reduction == "sum" else layer_values.mean())
    return total / len(x)
