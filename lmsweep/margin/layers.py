"""Which activations of a network a margin is measured at: layer sets by name, caught in a forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

INPUT, OUTPUT = "input", "output"
_NORMALISATION = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


def network(module: nn.Module) -> nn.Module:
    """The network inside wrappers: while only one child holds all parameters, that child."""
    original = _original(module)
    if original is not None:
        return network(original)
    if hasattr(module, "layer_names") or isinstance(module, nn.Sequential):
        return module
    owners = [child for child in module.children() if any(True for _ in child.parameters())]
    own = any(True for _ in module.parameters(recurse=False))
    return module if own or len(owners) != 1 else network(owners[0])


def hidden_layers(module: nn.Module) -> list[str]:
    """The names of the hidden layers, in order.

    A network may say so itself with an attribute `layer_names`. Otherwise they are its direct children that
    hold parameters, normalisation left out and the last one too, because it gives the logits.
    """
    net = network(module)
    named = getattr(net, "layer_names", None)
    if named is not None:
        return list(named)
    layers = [
        name
        for name, child in net.named_children()
        if not isinstance(child, _NORMALISATION) and any(True for _ in child.parameters())
    ]
    return layers[:-1]


def resolve_layers(module: nn.Module, layers: str | Sequence[str]) -> list[str]:
    """Turn a layer set into names: a list in its own order, a set in that of the network.

    `input`, `output`, `hidden` (all between), `all` (the paper's "all hidden layers and the output layer"),
    `everything` (with the input), `even:N` (input, output and N - 2 hidden layers evenly spaced between), a
    module's name, a glob such as `block*` over the hidden layers or else over all modules, or a list.
    """
    hidden = hidden_layers(module)
    modules = [name for name, _ in network(module).named_modules() if name]
    chosen: dict[str, None] = {}  # a set that keeps the order, which a list of gammas goes by
    for item in [layers] if isinstance(layers, str) else layers:
        chosen.update(dict.fromkeys(_expand(item, hidden, modules)))
    return list(chosen)


def compiled_around(module: nn.Module, name: str) -> bool:
    """Whether a layer lies inside a region that torch.compile turns into one piece.

    Such a layer cannot be reached: autograd sees the region as a single step. The output of a region can,
    so a network whose layers are compiled one by one is fine.
    """
    if name in (INPUT, OUTPUT):
        return False
    # Lightning remembers here that the whole module was compiled.
    if getattr(module, "_compiler_ctx", None) is not None:
        return True
    target = network(module).get_submodule(name)
    path = next(path for path, m in module.named_modules() if m is target).split(".")
    around = [module.get_submodule(".".join(path[:depth])) for depth in range(len(path))]
    wrapped = any(_original(m) is not None for m in around)
    return wrapped or any(m._compiled_call_impl is not None for m in [*around, target])


def _original(module: nn.Module) -> nn.Module | None:
    """What torch.compile wrapped. Its class is not imported: that alone takes a second."""
    return module._modules.get("_orig_mod")


def _expand(item: str, hidden: list[str], modules: list[str]) -> list[str]:
    sets = {
        INPUT: [INPUT],
        OUTPUT: [OUTPUT],
        "hidden": hidden,
        "all": [*hidden, OUTPUT],
        "everything": [INPUT, *hidden, OUTPUT],
    }
    if item in sets:
        return sets[item]
    if item.startswith("even:"):
        return _even(item, hidden)
    if item in modules:
        return [item]
    found = [n for n in hidden if fnmatchcase(n, item)] or [n for n in modules if fnmatchcase(n, item)]
    if not found:
        raise ValueError(
            f"there is no layer {item!r}; this network has {', '.join([INPUT, *hidden, OUTPUT])}, "
            f"the sets hidden, all, everything and even:N, "
            f"and the modules {', '.join(m for m in modules if m not in hidden) or '(none)'}"
        )
    return found


def _even(item: str, hidden: list[str]) -> list[str]:
    count = item.removeprefix("even:")
    inner = int(count) - 2 if count.isdecimal() else -1
    if not 0 <= inner <= len(hidden):
        raise ValueError(
            f"layer set {item!r} is not allowed: even:N takes N from 2 to {len(hidden) + 2} in this network"
        )
    # Position i of the inner ones, on a line that has the input at 0 and the output at len(hidden) + 1.
    step = (len(hidden) + 1) / (inner + 1)
    return [INPUT, *(hidden[round((i + 1) * step) - 1] for i in range(inner)), OUTPUT]


@dataclass
class Captured:
    """What the last forward pass inside `capture` produced."""

    logits: Tensor | None = None
    layers: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def capture(module: nn.Module, names: Sequence[str]) -> Iterator[Captured]:
    """Hook `module` so that a forward pass inside leaves its logits and the named layers in the result.

    The hooks are gone when the block ends. When `input` is wanted and the module's first tensor does not
    require grad, the module sees a copy that does, so the caller's tensor is left alone. Passes without
    gradients are not looked at; of several passes, and of several uses of one layer, the last counts.
    """
    captured = Captured()
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
    with ExitStack() as hooks:
        for name in names:
            if name not in (INPUT, OUTPUT):
                hooks.enter_context(net.get_submodule(name).register_forward_hook(keeper(name)))
        if INPUT in names:
            hooks.enter_context(module.register_forward_pre_hook(mark_input, with_kwargs=True))
        hooks.enter_context(module.register_forward_hook(keep_logits))
        yield captured
        changed = [name for name, kept in versions.items() if captured.layers[name]._version != kept]
        if changed:
            raise ValueError(
                f"what follows {changed[0]} changes its output in place, so it cannot be measured: "
                "choose the layer that is behind"
            )


def _tensor(output: Any, name: str) -> Tensor:
    if isinstance(output, Tensor):
        return output
    # Recurrent layers and networks with auxiliary heads return tuples whose first part is the main output.
    if isinstance(output, tuple | list) and output and isinstance(output[0], torch.Tensor):
        return output[0]
    raise TypeError(
        f"{name} gave a {type(output).__name__}: a margin needs a tensor, or a tuple that starts with one"
    )
