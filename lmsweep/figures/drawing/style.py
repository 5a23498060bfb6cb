"""The one place that says how a method looks: the same colour, marker and line in every figure."""

import re
from dataclasses import dataclass, replace
from typing import Any

# Okabe and Ito's palette, made to be told apart by colour-blind readers.
BLACK, GREY = "#000000", "#7f7f7f"
ORANGE, SKY, GREEN = "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILLION, PURPLE = "#0072b2", "#d55e00", "#cc79a7"

LINE_WIDTH, MARKER_SIZE, BAND = 1.2, 4.2, 0.13
PANEL_INCHES, PANEL_HEIGHT = 3.4, 2.55
RC: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "mathtext.fontset": "dejavusans",
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
}
REFERENCE_COLORS = (PURPLE, ORANGE, SKY)
# The paper's colours, and dashes for readers who cannot tell colours apart.
SPLITS: dict[str, tuple[str, Any, str]] = {
    "train": (ORANGE, "-", "training"),
    "validation": (VERMILLION, (0, (4, 1.5)), "validation"),
    "test": (BLUE, (0, (1, 1)), "test"),
}

_NORMS = {"1": (GREEN, "^"), "2": (BLUE, "D"), "inf": (VERMILLION, "o")}
_DASHED, _DASHDOT = (0, (4, 1.8)), (0, (5, 1.5, 1, 1.5))
_DASHDOTDOT = (0, (5, 1.2, 1, 1.2, 1, 1.2))
_TRAINED = {"fgsm": ((0, (1, 1.1)), "P", "FGSM-trained"), "pgd": ((0, (1, 2.4)), "X", "PGD-trained")}
# Scores of active learning have the colours of the points that others have published of them.
_ACQUIRED = {
    "bald": (PURPLE, "h", "BALD"),
    "random": (ORANGE, "<", "random images"),
    "max_entropy": (SKY, ">", "maximum entropy"),
}
_LAYERS = {"input": "input only", "all": "all layers", "hidden": "hidden layers", "output": "output only"}

# Colours by family: margins at the outputs, against wrong labels, penalties and constraints, robust training.
_OTHERS = {
    "xent": (BLACK, "s", "Cross-entropy"),
    "hinge": (GREY, "p", "Hinge"),
    "output_margin": (GREY, "<", "Output margin"),
    "soft_margin": (GREY, ">", "Soft-margin softmax"),
    "liu": (GREY, "h", "Large-margin softmax"),
    "bootstrapping": (ORANGE, "s", "Bootstrapping"),
    "gce": (ORANGE, "D", "GCE"),
    "sce": (ORANGE, "o", "SCE"),
    "jacobian": (PURPLE, "s", "Jacobian"),
    "cross_lipschitz": (PURPLE, "D", "Cross-Lipschitz"),
    "input_gradient": (PURPLE, "o", "Input gradient"),
    "parseval": (PURPLE, "^", "Parseval"),
    "trades": (SKY, "D", "TRADES"),
    "mma": (SKY, "o", "MMA"),
}


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn and called."""

    color: str
    marker: str
    line: Any
    filled: bool
    label: str  # plain text
    legend: str  # the same for matplotlib

    def line_kwargs(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        line = {"color": self.color, "linestyle": self.line, "linewidth": LINE_WIDTH}
        edge = {"markeredgewidth": 0.9, "markeredgecolor": self.color}
        face = {"markersize": MARKER_SIZE, "markerfacecolor": self.color if self.filled else "white"}
        return {**line, "marker": self.marker, **edge, **face}


def method_style(method: str) -> MethodStyle:
    """The style of a method as `RunConfig.method_name` names it; what a variant goes without is dashed."""
    rest, _, variant = method.rpartition("@")
    if rest:
        whole = method_style(rest)
        key, _, value = variant.partition("=")
        word = key.rpartition(".")[2].replace("_", " ")
        label = f"{whole.label}, {value if word == 'name' else f'{word} {value}'}"
        off = value in ("0", "null", "sgd")
        drawn: dict[str, Any] = {"line": _DASHED, "filled": False} if off else {}
        return replace(whole, label=label, legend=in_math(label), **drawn)
    found = re.fullmatch(r"(.+?)(?:\+(fgsm|pgd))?(?:\+(bald|random|max_entropy))?", method, re.DOTALL)
    base, trained, acquired = found.groups()  # type: ignore[union-attr]
    margin = re.fullmatch(r"margin_l(inf|[\d.]+)_(.+?)((?:_(?:hinge|softmax|exact))*)", base)
    line: Any = "-"
    filled = True
    if margin:
        norm, layers, words = margin.groups()
        color, marker = _NORMS.get(norm, (PURPLE, "v"))
        filled = layers != "input"
        line = "-" if layers == "all" else _DASHED if layers == "input" else _DASHDOT
        even = re.fullmatch(r"even:(\d+)", layers)
        place = f"{even[1]} layers" if even else _LAYERS.get(layers, layers)
        label = ", ".join([f"Margin l{norm}", place, *words.split("_")[1:]])
        if "_exact" in words:
            color = _darker(color)
        elif words:
            line = _DASHDOTDOT
    else:
        color, marker, label = _OTHERS.get(base, (PURPLE, "v", base))
    if trained:
        line, marker, words = _TRAINED[trained]
        label += f", {words}"
    if acquired:
        color, marker, words = _ACQUIRED[acquired]
        label += f", {words}"
    return MethodStyle(color, marker, line, filled, label, in_math(label))


def _darker(color: str) -> str:
    return "#" + "".join(f"{round(int(color[i : i + 2], 16) / 2):02x}" for i in (1, 3, 5))


def in_math(label: str) -> str:
    """A label with its norm as the paper sets it."""

    def norm(match: re.Match[str]) -> str:
        index = r"\infty" if match[1] == "inf" else match[1]
        return rf"$\ell_{{{index}}}$"

    return re.sub(r"\bl(\d+(?:\.\d+)?|inf)\b", norm, label.replace("$", r"\$"))
