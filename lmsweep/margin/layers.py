"""Layer sets by name: which activations of a network a margin is measured at."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

INPUT, OUTPUT = "input", "output"
_NORMALISATION = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


def network(module: nn.Module) -> nn.Module:
    """The network inside wrappers: while only one child holds all parameters, that child."""
    while True:
        original = _original(module)
        if original is not None:
            module = original
            continue
        if hasattr(module, "layer_names") or isinstance(module, nn.Sequential):
            return module
        owners = [child for child in module.children() if any(True for _ in child.parameters())]
        own = any(True for _ in module.parameters(recurse=False))
        if own or len(owners) != 1:
            return module
        module = owners[0]


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
