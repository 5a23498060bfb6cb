"""Which runs take about as long as each other."""

from typing import Any

from lmsweep.config.identity import run_id
from lmsweep.config.run import RunConfig

# Keys that change the result of a run but hardly its duration.
_FREE = ("seed", "data.fraction", "data.label_noise", "data.noisy_validation", "model.dropout")
_FREE_OF_MARGIN = ("norm", "gamma", "weight", "epsilon", "clip")


def cost_key(config: RunConfig) -> str:
    """Runs with the same key take about as long as each other."""
    identity = config.identity_dict()
    for key in (*_FREE, *(f"margin.{name}" for name in _FREE_OF_MARGIN)):
        *parents, last = key.split(".")
        node: dict[str, Any] = identity
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)
    identity["optimizer"] = config.optimizer.target
    if config.trainer.processes > 1:  # part of no identity, and yet it takes another time
        identity["processes"] = config.trainer.processes
    return run_id(identity)
