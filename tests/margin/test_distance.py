"""Distances: closed forms, geometry, candidate classes, numerical corners, memory."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lmsweep.margin import margin_distance, margin_loss
from lmsweep.margin.distance import linearised_margins
from tests.margin.reference import Net

INF = math.inf
NORMS = [1, 1.5, 2, 3, INF]


@pytest.mark.parametrize("p", NORMS)
@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 6))
def test_distance_of_a_linear_classifier_is_the_closed_form(p, seed, classes):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(classes, 4, generator=generator, dtype=torch.float64)
    b = torch.randn(classes, generator=generator, dtype=torch.float64)
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, classes, (5,), generator=generator)
    distance = margin_distance(x @ w.T + b, y, [x], norm=p, epsilon=1e-15)
    assert distance.shape == (5, classes, 1)
    q = {1: INF, INF: 1.0}.get(p) or p / (p - 1)
    for k in range(5):
        for i in range(classes):
            if i == y[k]:
                assert distance[k, i, 0] == INF
            else:
                normal, offset = w[y[k]] - w[i], b[y[k]] - b[i]
                expected = (normal @ x[k] + offset) / torch.linalg.vector_norm(normal, ord=q)
                assert distance[k, i, 0].item() == pytest.approx(expected.item(), rel=1e-9)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_distance_does_not_change_with_the_scale_and_offset_of_the_scores(seed, scale, shift):
    torch.manual_seed(seed)
    net = Net().double()
    logits, layers = net(torch.randn(4, 5, dtype=torch.float64, requires_grad=True))
    y = torch.randint(0, 5, (4,))
    hidden = layers[:3]  # at the output itself the unit is that of the scores
    plain = margin_distance(logits, y, hidden, epsilon=1e-15)
    changed = margin_distance(logits * scale + shift, y, hidden, epsilon=1e-15)
    torch.testing.assert_close(plain, changed, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("p", [1, 2, INF])
def test_no_boundary_point_in_the_same_linear_region_is_nearer(p):
    """A fine search over directions with the real network, which never looks at a gradient."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()

    def pattern(points):
        first = net[0](points)
        return torch.cat([first > 0, net[2](first.relu()) > 0], dim=1)

    angles = torch.linspace(0, 2 * math.pi, 400, dtype=torch.float64)
    rays = torch.stack([angles.cos(), angles.sin()], 1)
    radii = torch.linspace(0, 3, 601, dtype=torch.float64)
    found = met = 0
    for _ in range(40):
        x = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)
        logits = net(x)
        y = logits.argmax(1)
        distance = margin_distance(logits, y, [x], norm=p).amin().item()
        with torch.no_grad():
            points = x + rays[:, None, :] * radii[None, :, None]
            scores = net(points.reshape(-1, 2))
            crossed = ((scores.argmax(1) != y) & (pattern(points.reshape(-1, 2)) == pattern(x)).all(1)).view(
                len(rays), len(radii)
            )
            # The first radius on each ray that is on the other side and still in the region of x.
            first = torch.where(crossed.any(1), crossed.int().argmax(1), -1)
            reached = first >= 0
            if not reached.any():
                continue
            found += 1
            steps = rays[reached] * radii[first[reached], None]
            nearest = torch.linalg.vector_norm(steps, ord=p, dim=1).min().item()
        assert nearest >= distance - 1e-9
        met += nearest <= distance + 0.02
    assert found >= 5, "the search must have met boundaries for the comparison to mean anything"
    assert met >= 3, "where the nearest point lies in the region, the two must be equal"


def test_top_k_measures_the_best_scored_classes_only():
    torch.manual_seed(0)
    net = Net().double()
    logits, layers = net(torch.randn(4, 5, dtype=torch.float64, requires_grad=True))
    y = torch.randint(0, 5, (4,))
    every = margin_distance(logits, y, layers)
    two = margin_distance(logits, y, layers, top_k=2)
    for k in range(4):
        order = sorted((i for i in range(5) if i != y[k]), key=lambda i: -logits[k, i].item())
        for i in range(5):
            expected = every[k, i] if i in order[:2] else torch.full((4,), INF, dtype=torch.float64)
            torch.testing.assert_close(two[k, i], expected)


@pytest.mark.parametrize("p", [1, 2, INF])
def test_candidates_by_distance_are_the_nearest_at_the_last_layer(p):
    torch.manual_seed(0)
    net = Net().double()
    logits, layers = net(torch.randn(8, 5, dtype=torch.float64, requires_grad=True))
    y = torch.randint(0, 5, (8,))
    every = margin_distance(logits, y, [layers[2]], norm=p)[:, :, 0]
    chosen = linearised_margins(
        logits,
        y,
        layers,
        norm=p,
        top_k=2,
        epsilon=1e-6,
        exact=False,
        score="logit",
        last_layer=net.out.weight,
    ).classes
    assert torch.equal(chosen.sort(1).values, every.topk(2, largest=False).indices.sort(1).values)


def test_batched_sweeps_equal_single_ones():
    """The variant that CUDA takes, run here on the CPU."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 40)
    ).double()
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    hidden = net[:3](x)
    logits = net[3:](hidden)
    y = torch.randint(0, 40, (3,))  # more than one group of classes
    options = {"norm": 1.5, "top_k": None, "epsilon": 1e-6, "exact": False, "score": "softmax"}
    one, many = (
        linearised_margins(logits, y, [x, hidden, logits], batched=batched, **options)
        for batched in (False, True)
    )
    torch.testing.assert_close(one.gradient_norm, many.gradient_norm)
    torch.testing.assert_close(one.distance, many.distance)


def finite_loss_and_gradients(net, x, y, **options):
    logits, layers = net(x.requires_grad_())
    loss = margin_loss(logits, y, layers, **options)
    gradients = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(g).all() for g in gradients if g is not None)
    return loss


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("score", ["logit", "softmax"])
def test_corners_give_neither_nan_nor_inf(p, score, exact):
    torch.manual_seed(0)
    options = {"norm": p, "score": score, "exact": exact}
    y = torch.tensor([0, 1, 2])
    # Zero gradients: every unit of the hidden layers is dead.
    dead = Net(activation=nn.ReLU)
    nn.init.constant_(dead.first[0].bias, -100.0)
    finite_loss_and_gradients(dead, torch.randn(3, 5), y, **options)
    # Exactly tied scores, at which the gradient difference is zero as well.
    tied = Net()
    nn.init.zeros_(tied.out.weight)
    nn.init.zeros_(tied.out.bias)
    finite_loss_and_gradients(tied, torch.randn(3, 5), y, **options)
    # Saturated softmax: scores of exactly 0 and 1.
    saturated = Net()
    with torch.no_grad():
        saturated.out.weight.mul_(1e4)
    finite_loss_and_gradients(saturated, torch.randn(3, 5), y, **options)
    # One sample; one pair of classes.
    finite_loss_and_gradients(Net(), torch.randn(1, 5), torch.tensor([4]), **options)
    finite_loss_and_gradients(Net(classes=2), torch.randn(1, 5), torch.tensor([1]), **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", NORMS)
def test_autocast_computes_the_norm_in_float32_and_stays_near_full_precision(p, dtype):
    torch.manual_seed(0)
    net = Net(hidden=64)
    x, y = torch.randn(16, 5), torch.randint(0, 5, (16,))
    full = finite_loss_and_gradients(net, x.clone(), y, norm=p)
    with torch.autocast("cpu", dtype=dtype):
        logits, layers = net(x.clone().requires_grad_())
        assert logits.dtype == dtype
        distance = margin_distance(logits, y, layers, norm=p)
        assert distance.dtype == torch.float32
        half = finite_loss_and_gradients(net, x.clone(), y, norm=p)
    assert half.item() == pytest.approx(full.item(), rel=0.05)


def test_float16_gradients_below_its_range_are_not_lost():
    """A gradient of 2e-8 is zero in float16; scaled on its way down it is not."""
    weight = torch.tensor([[2e-8, 0.0], [0.0, 0.0]], requires_grad=True)
    x = torch.ones(1, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = x.half()
        logits = (hidden * 2**-13 @ (weight * 2**13).half().T).half()
        margins = linearised_margins(
            logits, torch.tensor([0]), [hidden], norm=2, top_k=None, epsilon=1e-12, exact=False, score="logit"
        )
    assert margins.gradient_norm.item() == pytest.approx(2e-8, rel=0.1)


def test_float16_gradients_beyond_its_range_mean_steep_rather_than_nan():
    hidden = torch.ones(1, 2, dtype=torch.float16, requires_grad=True)
    logits = hidden * torch.tensor([1000.0, -1000.0]).half()
    margins = linearised_margins(
        logits, torch.tensor([0]), [hidden], norm=2, top_k=None, epsilon=1e-6, exact=False, score="logit"
    )
    assert margins.gradient_norm.item() == torch.inf
    assert margins.distance.item() == 0


def test_candidates_by_distance_do_not_depend_on_the_score():
    """Where softmax saturates, probabilities no longer tell the other classes apart."""
    torch.manual_seed(0)
    rows = torch.randn(6, 4)
    x = (300 * torch.randn(20, 4)).requires_grad_()
    logits = x @ rows.T
    y = logits.argmax(1)
    by_logit, by_softmax = (
        linearised_margins(
            logits, y, [x], norm=2, top_k=2, epsilon=1e-6, exact=False, score=score, last_layer=rows
        ).classes
        for score in ("logit", "softmax")
    )
    assert torch.equal(by_logit, by_softmax)


def peak_extra_bytes(classes: int, exact: bool = False) -> tuple[int, int]:
    """The most memory margin_loss holds beyond what it found, and the size of the chosen activations."""
    torch.manual_seed(0)
    net = Net(inputs=2000, hidden=2000, classes=classes)
    logits, layers = net(torch.randn(64, 2000, requires_grad=True))
    chosen = layers[:3]
    y = torch.randint(0, classes, (64,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        loss = margin_loss(logits, y, chosen, exact=exact)
    assert loss.requires_grad
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak, sum(layer.nbytes for layer in chosen)


def test_first_order_memory_stays_within_one_copy_of_the_activations_for_any_number_of_classes():
    few, activations = peak_extra_bytes(classes=3)
    many, _ = peak_extra_bytes(classes=30)
    # Beside the copy, a backward pass holds the gradient it passes on, and loss terms of (64, 30, 3) floats.
    one_gradient, terms = activations // 3, 64 * 30 * 3 * 4
    assert few > 0.9 * activations, "the measurement must see class gradients"
    assert few <= activations + one_gradient + 10 * terms
    assert many <= few + 10 * terms
    exact, _ = peak_extra_bytes(classes=30, exact=True)
    assert exact > 10 * many, "exact mode keeps every backward pass, and the measurement must see it"
