"""The audit rebuilds what methods make of a network, and believes robustness that was trained for."""

import pytest

from lmsweep.commands.jobs import run_training
from lmsweep.config.run import split
from tests.evaluation.conftest import TRAINING, composed
from tests.evaluation.test_audit import examine

# Sums of residuals, which Parseval makes weighted means.
RESIDUAL = ("model=wide_resnet", "model.depth=10", "model.width=1")
ATTACK = ("adversarial.epsilon=0.1", "adversarial.alpha=0.05", "adversarial.steps=3")


@pytest.mark.slow
def test_the_audit_of_networks_that_are_attacked_or_constrained_in_training(tmp_path):
    training = {
        "xent": ("method=xent", *TRAINING),
        "trades": ("method=trades", *TRAINING, *ATTACK),
        "mma": ("method=mma", *TRAINING, *ATTACK),
        "parseval": ("method=parseval", *TRAINING[:3], *RESIDUAL),
    }
    left = {}
    for name, words in training.items():
        folder, results = run_training(split(composed("config", tmp_path, *words))[0])
        keys = ("samples=500", "source=none", "epsilons=[0.1]")
        _, audit = examine((tmp_path, {name: folder.id}), name, *keys)
        assert audit["verdict"] == "consistent", (name, audit["reasons"])
        # Of all test images: the same network as at the end of training.
        assert audit["evidence"]["clean"] == pytest.approx(results["metrics"]["test_accuracy"], abs=1e-9)
        (left[name],) = audit["evidence"]["worst"]
    assert left["trades"] > left["xent"] + 0.1
