"""Projections and steps in l1, l2 and linf, against a general solver and a naive search."""

import pytest
import torch
from scipy.optimize import minimize

from lmsweep.attacks.balls import lengths, project, random_points, steepest

NORMS = ("l1", "l2", "linf")


@pytest.fixture
def cloud():
    generator = torch.Generator().manual_seed(0)
    centre = torch.rand(20, 1, 2, 3, generator=generator, dtype=torch.float64)
    return centre, centre + torch.randn(centre.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 3.0])
def test_points_end_inside_ball_and_box_and_points_inside_stay(cloud, norm, epsilon):
    centre, x = cloud
    inside = project(x, centre, epsilon, True, norm)
    assert (lengths(inside - centre, norm) <= epsilon + 1e-9).all()
    assert ((inside >= 0) & (inside <= 1)).all()
    torch.testing.assert_close(project(inside, centre, epsilon, True, norm), inside, rtol=0, atol=2e-6)


@pytest.mark.parametrize("clip_pixels", [True, False])
def test_the_projection_in_l1_is_the_nearest_point_of_ball_and_box(cloud, clip_pixels):
    centre, x = cloud
    epsilon = 0.5
    found = project(x, centre, epsilon, clip_pixels, "l1")
    for i in range(5):
        c, wanted = centre[i].flatten().numpy(), x[i].flatten().numpy()
        # The change as a difference of two parts, both not negative, makes the length linear.
        bounds = [(0, 1 - v if clip_pixels else None) for v in c] + [
            (0, v if clip_pixels else None) for v in c
        ]
        best = minimize(
            lambda u, c=c, wanted=wanted: ((c + u[:6] - u[6:] - wanted) ** 2).sum(),
            [0.01] * 12,
            bounds=bounds,
            constraints={"type": "ineq", "fun": lambda u: epsilon - u.sum()},
            options={"ftol": 1e-12, "maxiter": 500},
        )
        nearest = torch.from_numpy(c + best.x[:6] - best.x[6:])
        torch.testing.assert_close(found[i].flatten(), nearest, rtol=0, atol=1e-4)


def test_a_batch_may_have_an_epsilon_for_each_sample(cloud):
    centre, x = cloud
    epsilons = torch.linspace(0.1, 2, 20, dtype=torch.float64).view(-1, 1, 1, 1)
    for norm in NORMS:
        together = project(x, centre, epsilons, True, norm)
        one_by_one = [
            project(x[i : i + 1], centre[i : i + 1], epsilons[i].item(), True, norm) for i in range(20)
        ]
        torch.testing.assert_close(together, torch.cat(one_by_one))


@pytest.mark.parametrize("norm", NORMS)
def test_no_change_of_length_one_climbs_faster(norm):
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(4, 1, 3, 3, generator=generator)
    step = steepest(gradient, norm, 1 / 9)
    torch.testing.assert_close(lengths(step, norm), torch.ones(4))
    gain = (step * gradient).flatten(1).sum(1)
    others = torch.randn(1000, 4, 9, generator=generator)
    others /= torch.linalg.vector_norm(others, ord={"l1": 1, "l2": 2, "linf": torch.inf}[norm], dim=2)[
        ..., None
    ]
    assert (gain + 1e-6 >= (others * gradient.flatten(1)).sum(2)).all()
    assert (steepest(torch.zeros(2, 1, 3, 3), norm) == 0).all()
    # Squares of such gradients are zero in float32.
    torch.testing.assert_close(steepest(gradient * 1e-30, norm, 1 / 9), step)


def test_in_l1_a_share_of_the_entries_takes_equal_parts():
    gradient = torch.tensor([[3.0, -2.0, 1.0, 0.5]])
    assert steepest(gradient, "l1", 0.5).tolist() == [[0.5, -0.5, 0.0, 0.0]]


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_are_inside_and_repeat(cloud, norm):
    centre, _ = cloud
    points = [random_points(centre, 0.3, norm, True, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*points)
    assert (lengths(points[0] - centre, norm) <= 0.3 + 1e-9).all()
    assert (points[0] != centre).any(1).all()
