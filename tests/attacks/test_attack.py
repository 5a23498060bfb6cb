"""What attacks aim at."""

import torch

from lmsweep.attacks.attack import Clean


def test_the_least_likely_class_is_never_the_true_one():
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 5.0, 5.0]])
    clean = Clean(torch.zeros(3, 1), torch.tensor([0, 2, 0]), logits)
    labels, targeted = clean.aim("least_likely")
    assert targeted
    assert labels.tolist()[:2] == [2, 1]
    assert labels[2] in (1, 2)
    assert torch.equal(logits[2], torch.tensor([0.0, 5.0, 5.0]))  # left as it was
    assert clean.aim("none") == (clean.y, False)
