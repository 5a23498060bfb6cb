"""The loss against the naive loop, its closed forms, and its corners."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC
from torch import nn

from lmsweep.margin import margin_loss
from tests.margin.reference import Net, naive_margin_loss

INF = math.inf


def case(seed: int = 0, samples: int = 6, activation: type = nn.Tanh):
    torch.manual_seed(seed)
    net = Net(activation=activation).double()
    with torch.no_grad():
        net.out.weight.mul_(3)  # so that some samples are far from the boundary and some are not
    x = torch.randn(samples, 5, dtype=torch.float64)
    y = torch.randint(0, 5, (samples,))
    return net, x, y


def gradients(loss, net):
    values = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(values, net.parameters(), strict=True)]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("norm", [1, 1.5, 2, 3, INF])
def test_values_and_parameter_gradients_equal_the_naive_loop(norm, exact):
    combinations = itertools.product(["max", "sum"], [1, 3, None], ["logit", "softmax"])
    for number, (aggregation, top_k, score) in enumerate(combinations):
        net, x, y = case(seed=number, activation=nn.ReLU if number % 2 else nn.Tanh)
        options = {
            "norm": norm,
            "gamma": [0.5, 1.0, 2.0, 0.7],
            "top_k": top_k,
            "aggregation": aggregation,
            "epsilon": 1e-6,
            "clip": 3.0 if number % 3 == 0 else None,
            "exact": exact,
            "score": score,
            "layer_reduction": "mean" if number % 4 == 0 else "sum",
            "layer_weights": [1.0, 2.0, 0.5, 3.0] if number % 5 == 0 else None,
        }
        logits, layers = net(x.clone().requires_grad_())
        ours = margin_loss(logits, y, layers, **options)
        naive = naive_margin_loss(net, x, y, **options)
        assert ours.item() == pytest.approx(naive.item(), abs=1e-9, rel=1e-9)
        assert ours.item() > 0
        for a, b in zip(gradients(ours, net), gradients(naive, net), strict=True):
            torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("norm", [1.5, 2, 3])
def test_exact_gradients_equal_numeric_differentiation(norm):
    net, x, y = case(seed=3)
    names = [name for name, _ in net.named_parameters()]

    def loss(*parameters):
        logits, layers = torch.func.functional_call(
            net, dict(zip(names, parameters, strict=True)), (x.clone().requires_grad_(),)
        )
        return margin_loss(logits, y, layers, norm=norm, gamma=5.0, aggregation="sum", exact=True)

    parameters = [p.detach().clone().requires_grad_() for p in net.parameters()]
    assert torch.autograd.gradcheck(loss, parameters, eps=1e-6, atol=1e-6)


def test_first_order_gradients_are_not_exact():
    """A check of the check: the two modes must differ where the norm depends on the weights."""
    net, x, y = case(seed=3)
    logits, layers = net(x.clone().requires_grad_())
    first, exact = (margin_loss(logits, y, layers, gamma=5.0, exact=exact) for exact in (False, True))
    assert first.item() == pytest.approx(exact.item())
    assert not torch.allclose(gradients(first, net)[0], gradients(exact, net)[0])


def test_reductions_over_the_batch_agree():
    net, x, y = case()
    logits, layers = net(x.clone().requires_grad_())
    each = margin_loss(logits, y, layers, reduction="none")
    assert each.shape == (6,)
    assert margin_loss(logits, y, layers).item() == pytest.approx(each.mean().item())
    assert margin_loss(logits, y, layers, reduction="sum").item() == pytest.approx(each.sum().item())


@settings(max_examples=60)
@given(
    gamma=st.floats(0.01, 100),
    alpha=st.floats(0.1, 10),
    top_k=st.sampled_from([1, 2, 4]),
    aggregation=st.sampled_from(["max", "sum"]),
    seed=st.integers(0, 1000),
)
def test_the_released_loss_is_a_special_case_up_to_a_constant(gamma, alpha, top_k, aggregation, seed):
    """The released code's value is ours minus gamma, or minus k times gamma when it sums over classes."""
    net, x, y = case(seed)
    logits, layers = net(x.clone().requires_grad_())
    ours = margin_loss(
        logits,
        y,
        layers,
        score="softmax",
        clip=alpha,
        layer_reduction="mean",
        gamma=gamma,
        top_k=top_k,
        aggregation=aggregation,
        reduction="none",
    )
    scores = logits.softmax(1)
    others = scores.scatter(1, y.unsqueeze(1), -1.0).topk(top_k).indices
    per_layer = []
    for layer in layers:
        released = []
        for column in others.T:
            difference = scores[range(6), y] - scores[range(6), column]
            (gradient,) = torch.autograd.grad(difference.sum(), layer, retain_graph=True)
            d = difference / (1e-6 + gradient.norm(dim=1))
            # Written as the release does, without gamma added: from -gamma to (alpha - 1) gamma.
            released.append(
                torch.maximum(-torch.ones_like(d) * gamma, torch.minimum(-d, (alpha - 1) * gamma + 0 * d))
            )
        stacked = torch.stack(released, 1)
        per_layer.append(stacked.amax(1) if aggregation == "max" else stacked.sum(1))
    released_value = torch.stack(per_layer, 1).mean(1)
    constant = gamma if aggregation == "max" else top_k * gamma
    torch.testing.assert_close(ours - constant, released_value, atol=1e-7 * gamma, rtol=1e-9)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, INF])
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), gamma=st.floats(0.1, 10))
def test_loss_of_a_linear_classifier_is_the_closed_form(p, seed, gamma):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    bias = torch.randn(2, generator=generator, dtype=torch.float64)
    x = torch.randn(8, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, 2, (8,), generator=generator)
    loss = margin_loss(x @ weight.T + bias, y, [x], norm=p, gamma=gamma, epsilon=1e-15, reduction="none")
    w, b = (weight[1] - weight[0]).numpy(), float(bias[1] - bias[0])
    q = {1: np.inf, INF: 1}.get(p) or p / (p - 1)
    signed = (x.detach().numpy() @ w + b) / np.linalg.norm(w, ord=q) * np.where(y.numpy() == 1, 1, -1)
    np.testing.assert_allclose(loss.detach().numpy(), np.maximum(0, gamma - signed), rtol=1e-9, atol=1e-9)


def test_a_linear_classifier_trained_with_norm_2_becomes_the_support_vector_machine():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal((2, 1), 0.7, (40, 2)), rng.normal((-1, -2), 0.7, (40, 2))])
    labels = np.repeat([1, 0], 40)
    svm = SVC(kernel="linear", C=1e6).fit(points, labels)
    margin = 1 / np.linalg.norm(svm.coef_)
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    y = torch.tensor(labels)
    torch.manual_seed(0)
    linear = nn.Linear(2, 2).double()
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.02)
    # gamma a little above what is possible: then only the nearest points pull, as in the SVM.
    for step in range(6000):
        if step % 2000 == 1999:
            optimizer.param_groups[0]["lr"] /= 10
        optimizer.zero_grad()
        distance = margin_loss(linear(x), y, [x], gamma=1.02 * margin, exact=True, reduction="none")
        distance.max().backward()
        optimizer.step()
    w = (linear.weight[1] - linear.weight[0]).detach().numpy()
    b = float((linear.bias[1] - linear.bias[0]).detach())
    cosine = w @ svm.coef_[0] / np.linalg.norm(w) / np.linalg.norm(svm.coef_)
    reached = ((points @ w + b) * np.where(labels == 1, 1, -1)).min() / np.linalg.norm(w)
    assert cosine > 0.99
    assert reached > 0.97 * margin


BAD = {
    "norm": ({"norm": 0.5}, "norm=0.5"),
    "norm name": ({"norm": "two"}, "norm='two'"),
    "gamma": ({"gamma": 0.0}, "gamma=0.0"),
    "gamma count": ({"gamma": [1.0, 2.0]}, "2 values for 4 layers"),
    "weights count": ({"layer_weights": [1.0]}, "1 values for 4 layers"),
    "aggregation": ({"aggregation": "mean"}, "aggregation='mean'"),
    "score": ({"score": "prob"}, "score='prob'"),
    "layers": ({"layer_reduction": "max"}, "layer_reduction='max'"),
    "reduction": ({"reduction": "max"}, "reduction='max'"),
    "top_k": ({"top_k": 0}, "top_k=0"),
    "epsilon": ({"epsilon": -1.0}, "epsilon=-1.0"),
    "clip": ({"clip": 0.0}, "clip=0.0"),
    "weights": ({"layer_weights": [1.0, 1.0, -1.0, 1.0]}, "layer_weights="),
    "no gamma": ({"gamma": []}, "gamma="),
    "last layer": ({"top_k": 1, "last_layer": torch.zeros(3, 7)}, "3 rows for 5 classes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named(name):
    options, message = BAD[name]
    net, x, y = case()
    logits, layers = net(x.clone().requires_grad_())
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        margin_loss(logits, y, layers, **options)


def test_bad_tensors_are_named():
    net, x, y = case()
    logits, layers = net(x.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"torch\.int64"):
        margin_loss(logits, y.int(), layers)
    with pytest.raises(ValueError, match="conv1 does not require grad"):
        margin_loss(logits, y, {"conv1": layers[1].detach()})
    with pytest.raises(ValueError, match="do not depend on stray"):
        margin_loss(logits, y, {"stray": torch.zeros(6, 3, dtype=torch.float64, requires_grad=True)})
    with pytest.raises(ValueError, match="layers is empty"):
        margin_loss(logits, y, [])
    with pytest.raises(ValueError, match=r"layers\[0\] holds 3 samples"):
        margin_loss(logits, y, [torch.zeros(3, 2, requires_grad=True)])


@pytest.mark.parametrize("top_k", [None, 1])
@pytest.mark.parametrize("wrong", [5, -1])
def test_a_target_that_is_no_class_is_named(wrong, top_k):
    net, x, y = case()
    logits, layers = net(x.clone().requires_grad_())
    with pytest.raises(ValueError, match=rf"^targets has the class {wrong}, .* must lie between 0 and 4$"):
        margin_loss(logits, y.index_fill(0, torch.tensor([2]), wrong), layers, top_k=top_k)
