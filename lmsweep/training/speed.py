"""Options that make training faster and change nothing but rounding: torch.compile and channels-last."""

import torch

from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError
from lmsweep.margin.layers import hidden_layers, network
from lmsweep.training.module import Classifier


def check_speed(config: RunConfig) -> None:
    """Raise ConfigError for options that cannot go together."""
    if not (config.trainer.compile and config.method.margin):
        return
    for key, wrong, reason in (
        ("margin.exact=true", config.margin.exact, "differentiated again"),
        (
            "margin.batch_norm=per_sample",
            config.margin.batch_norm == "per_sample",
            "changed for class gradients",
        ),
    ):
        if wrong:
            raise ConfigError(
                f"trainer.compile=true is not allowed with {key}: a compiled backward pass cannot be "
                f"{reason}; leave one of them out."
            )


def speed_up(module: Classifier, config: RunConfig) -> None:
    """Apply `trainer.channels_last` and `trainer.compile` to a network that is about to be trained."""
    order_memory(module, config)
    if config.trainer.compile:
        compile_layers(module)


def order_memory(module: Classifier, config: RunConfig) -> None:
    """Apply `trainer.channels_last`, for training or evaluation."""
    if config.trainer.channels_last:
        # torch's stubs know no call with a memory format alone.
        module.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module.channels_last = True


def compile_layers(module: Classifier) -> None:
    """Compile each hidden layer for itself: margins need the activations between them.

    Only `forward` of each layer is replaced, so names in checkpoints stay, and hooks see what they saw.
    """
    import torch._functorch.config as functorch

    # A margin runs the backward pass once per class; buffers that the first one reuses would be gone.
    functorch.donated_buffer = False
    net = network(module)
    for name in hidden_layers(module):
        layer = net.get_submodule(name)
        layer.forward = torch.compile(layer.forward)
    module.compiled = True
