"""Dual exponents and norms per sample."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmsweep.margin.distance import dual_exponent, sample_norm


@pytest.mark.parametrize(
    ("p", "q"),
    [(1, math.inf), (1.0, math.inf), (2, 2.0), (1.5, 3.0), (3, 1.5), ("inf", 1.0), (math.inf, 1.0)],
)
def test_dual_exponents(p, q):
    assert dual_exponent(p) == pytest.approx(q)


@pytest.mark.parametrize("p", [0.99, 0, -1, math.nan, "two"])
def test_what_is_not_a_norm_is_refused(p):
    with pytest.raises(ValueError, match="number >= 1"):
        dual_exponent(p)


@settings(max_examples=50)
@given(p=st.just(1.0) | st.floats(1.05, 20), seed=st.integers(0, 10_000))
def test_the_dual_norm_is_the_largest_product_over_the_unit_ball(p, seed):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(1, 6, generator=generator, dtype=torch.float64)
    q = dual_exponent(p)
    dual = sample_norm(a, q)
    v = torch.randn(2000, 6, generator=generator, dtype=torch.float64)
    products = (v / torch.linalg.vector_norm(v, ord=p, dim=1, keepdim=True)) @ a[0]
    assert products.max() <= dual * (1 + 1e-9)
    if math.isfinite(q):  # Hoelder's equality: the maximiser in closed form
        best = a.sign() * a.abs() ** (q - 1)
        best = best / torch.linalg.vector_norm(best, ord=p)
        assert (best @ a[0]).item() == pytest.approx(dual.item(), rel=1e-6)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0, 11.0, math.inf])
def test_norms_keep_shape_and_precision(q):
    gradient = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    expected = torch.stack([torch.linalg.vector_norm(g, ord=q) for g in gradient])
    torch.testing.assert_close(sample_norm(gradient, q), expected)
    assert sample_norm(gradient.half(), q).dtype == torch.float32
    assert sample_norm(gradient.bfloat16(), q).dtype == torch.float32


@pytest.mark.parametrize("q", [1.5, 3.0, 11.0])
def test_small_gradients_do_not_underflow(q):
    tiny = torch.full((1, 4), 1e-12)
    assert sample_norm(tiny, q).item() == pytest.approx(1e-12 * 4 ** (1 / q), rel=1e-5)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_the_subgradient_at_zero_is_zero(q):
    gradient = torch.zeros(2, 3, requires_grad=True)
    norm = sample_norm(gradient, q)
    assert norm.tolist() == [0.0, 0.0]
    (slope,) = torch.autograd.grad(norm.sum(), gradient)
    assert slope.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("q", [1.5, 2.0, 3.0])
def test_derivatives_of_the_norm(q):
    gradient = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda g: sample_norm(g, q), (gradient,))
