"""Catch the activations of chosen layers, and the logits, of one forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lmsweep.margin.layers import INPUT, OUTPUT, network


class Captured:
    """What the last forward pass inside `capture` produced."""

    def __init__(self) -> None:
        self.logits: Tensor | None = None
        self.layers: dict[str, Tensor] = {}


@contextmanager
def capture(module: nn.Module, names: Sequence[str]) -> Iterator[Captured]:
    """Hook `module` so that a forward pass inside leaves its logits and the named layers in the result.

    The hooks are gone when the block ends. When `input` is wanted and the module's first tensor does not
    require grad, the module sees a copy that does, so the caller's tensor is left alone. Passes without
    gradients are not looked at; of several passes, and of several uses of one layer, the last counts.
    """
    captured = Captured()
    handles: list[RemovableHandle] = []
    versions: dict[str, int] = {}

    def mark_input(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not torch.is_grad_enabled():
            return None
        arguments: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        key, x = next((key, value) for key, value in arguments.items() if isinstance(value, Tensor))
        if not x.requires_grad:
            x = x.detach().requires_grad_()
            # The network may work in place, which autograd forbids on a leaf but not on its clone.
            arguments[key] = x.clone()
        captured.layers[INPUT] = x
        return tuple(arguments.pop(i) for i in range(len(args))), arguments

    def keep_logits(_: nn.Module, __: Any, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        captured.logits = _tensor(output, "forward")
        if OUTPUT in names:
            captured.layers[OUTPUT] = captured.logits

    def keeper(name: str) -> Any:
        def keep(_: nn.Module, __: Any, output: Any) -> None:
            if torch.is_grad_enabled():
                captured.layers[name] = _tensor(output, name)
                versions[name] = captured.layers[name]._version

        return keep

    net = network(module)
    try:
        inner = [name for name in names if name not in (INPUT, OUTPUT)]
        handles.extend(net.get_submodule(name).register_forward_hook(keeper(name)) for name in inner)
        if INPUT in names:
            handles.append(module.register_forward_pre_hook(mark_input, with_kwargs=True))
        handles.append(module.register_forward_hook(keep_logits))
        yield captured
        changed = [name for name, kept in versions.items() if captured.layers[name]._version != kept]
        if changed:
            raise ValueError(
                f"what follows {changed[0]} changes its output in place, so it cannot be measured: "
                "choose the layer that is behind"
            )
    finally:
        for handle in handles:
            handle.remove()


def _tensor(output: Any, name: str) -> Tensor:
    if isinstance(output, Tensor):
        return output
    # Recurrent layers and networks with auxiliary heads return tuples whose first part is the main output.
    if isinstance(output, tuple | list) and output and isinstance(output[0], torch.Tensor):
        return output[0]
    raise TypeError(
        f"{name} gave a {type(output).__name__}: a margin needs a tensor, or a tuple that starts with one"
    )
