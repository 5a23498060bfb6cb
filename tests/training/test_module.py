"""Criteria on the logits against a naive loop and torch's own."""

import pytest
import torch
import torch.nn.functional as F

from lmsweep.training.module import criterion_loss, hinge


def case():
    torch.manual_seed(0)
    return torch.randn(9, 4, dtype=torch.float64, requires_grad=True), torch.randint(0, 4, (9,))


def test_hinge_is_the_violation_of_the_best_other_class():
    logits, y = case()
    expected = sum(
        max(0.0, 1 - row[t] + max(row[i] for i in range(4) if i != t))
        for row, t in zip(logits.tolist(), y.tolist(), strict=True)
    )
    assert hinge(logits, y).item() == pytest.approx(expected / 9)
    assert torch.autograd.gradcheck(lambda z: hinge(z, y), (logits,))


def test_criteria_are_weighted():
    logits, y = case()
    xent = F.cross_entropy(logits, y)
    torch.testing.assert_close(criterion_loss(logits, y, "xent", 1.0), xent)
    torch.testing.assert_close(criterion_loss(logits, y, "xent", 0.3), 0.3 * xent)
    torch.testing.assert_close(criterion_loss(logits, y, "hinge", 0.1), hinge(logits, y) + 0.1 * xent)
