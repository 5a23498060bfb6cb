"""The page of an audit: verdict, curves of every attack, indicators, and adversarial examples as pictures."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from torch import Tensor

from lmsweep.attacks.measures.indicators import ADVICE
from lmsweep.attacks.measures.masking import Evidence

TEMPLATE = Path(__file__).with_name("audit_page.html")


def write_page(
    path: Path,
    results: Mapping[str, Any],
    names: Mapping[str, str],
    epsilons: Sequence[float],
    images: Tensor,
    classes: Tensor,
) -> None:
    """Write one file of HTML that needs no other; `images` and `classes` are (epsilons, samples, ...)."""
    evidence, limits = results["evidence"], results["thresholds"]
    curves = {names.get(key, key): values for key, values in evidence["curves"].items()}
    signs = [
        {
            "name": name.replace("_", " "),
            "value": value,
            "limit": limits[name],
            "raised": value is not None and value > limits[name],
            "means": ADVICE[name][0].format(value or 0.0),
            "advice": ADVICE[name][1],
        }
        for name, value in Evidence(**evidence).signs.items()
    ]
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text())
    path.write_text(
        template.render(
            results=results,
            evidence=evidence,
            curves={**curves, "worst of all": evidence["worst"]},
            signs=signs,
            plot=_plot(evidence, curves),
            pictures=_pictures(epsilons, images, classes),
        )
    )


def _encoded(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode()


def _plot(evidence: Mapping[str, Any], curves: Mapping[str, Sequence[float]]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    panel = figure.subplots()
    x = [0.0, *evidence["epsilons"]]
    for name, values in curves.items():
        panel.plot(x, [100 * v for v in (evidence["clean"], *values)], marker="o", markersize=3, label=name)
    worst = [100 * v for v in (evidence["clean"], *evidence["worst"])]
    panel.plot(x, worst, color="black", linewidth=2.5, label="worst of all")
    panel.set(xlabel="epsilon", ylabel="accuracy (%)", ylim=(-2, 102))
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    return _encoded(figure)


def _pictures(epsilons: Sequence[float], images: Tensor, classes: Tensor) -> str:
    """A row per epsilon; a title tells the class that the network sees."""
    from matplotlib.figure import Figure

    count = images.shape[1]
    figure = Figure(figsize=(1.1 * count + 0.6, 1.35 * len(epsilons)), layout="constrained")
    for i, row in enumerate(figure.subplots(len(epsilons), count, squeeze=False)):
        for j, panel in enumerate(row):
            picture = images[i, j]
            shown = picture.permute(1, 2, 0) if picture.ndim == 3 else picture.view(1, -1, 1)
            panel.imshow(shown if shown.shape[2] == 3 else shown[..., 0], cmap="gray", vmin=0, vmax=1)
            changed = bool(classes[i, j] != classes[0, j])
            panel.set_title(str(int(classes[i, j])), fontsize=8, color="tab:red" if changed else "black")
            panel.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{epsilons[i]:g}", fontsize=8)
    return _encoded(figure)
