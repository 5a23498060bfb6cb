"""Draw figure 1: where a network of two inputs decides for which class, and the data it saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmsweep.figures.drawing.layout import Sheet, say_missing, seeds_phrase
from lmsweep.figures.drawing.style import BLUE, PANEL_INCHES, RC, VERMILLION, method_style

# Of the negative and the positive class: the region (blue and yellow, as in the paper), and its samples.
REGIONS = ("#d3e6f4", "#fbf6c4")
SAMPLES = (BLUE, VERMILLION)
BOLD: list[dict[str, Any]] = [
    {"color": color, "markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5}
    for color in SAMPLES
]
# Mixed with white rather than transparent, so that light dots do not darken where they meet.
LIGHT: list[dict[str, Any]] = [
    {"color": tuple(0.62 * c + 0.38 for c in to_rgb(color)), "markersize": 2.6, "markeredgewidth": 0}
    for color in SAMPLES
]


@dataclass(frozen=True)
class Regions:
    """A trained network on a grid of inputs: `score` > 0 means class 1 (rows are y, columns are x).

    Points have two columns, labels are 0 and 1, and the accuracy is that on the test points.
    """

    method: str
    x: np.ndarray
    y: np.ndarray
    score: np.ndarray
    train_points: np.ndarray
    train_labels: np.ndarray
    test_points: np.ndarray
    test_labels: np.ndarray
    test_accuracy: float


def draw_regions(networks: Sequence[Regions], title: str, scale: str) -> Figure:
    """The networks beside each other: regions, bold training and light test dots, test accuracy on top."""
    sheet = Sheet(1, max(1, len(networks)), 0.85 * PANEL_INCHES, 0.85 * PANEL_INCHES)
    with matplotlib.rc_context(RC):
        for axes, network in zip(sheet.axes[0], networks, strict=False):
            _draw(axes, network)
        if not networks:
            say_missing(sheet.axes[0][0])
        handles = [Line2D([], [], linestyle="none", marker="o", **style) for style in (*BOLD, *LIGHT)]
    labels = [f"{which}, class {label}" for which in ("training", "test") for label in (0, 1)]
    return sheet.finish(title, seeds_phrase(scale, [1] * len(networks)), handles, labels)


def _draw(axes: Axes, network: Regions) -> None:
    score = np.asarray(network.score, dtype=float)
    axes.contourf(network.x, network.y, score, levels=[-np.inf, 0.0, np.inf], colors=list(REGIONS), zorder=0)
    if score.min() < 0 < score.max():  # else there is no boundary, and matplotlib warns
        axes.contour(network.x, network.y, score, levels=[0.0], colors="black", linewidths=0.9, zorder=1)
    for points, labels, bold in (
        (network.test_points, network.test_labels, False),
        (network.train_points, network.train_labels, True),
    ):
        for label, style in enumerate(BOLD if bold else LIGHT):
            of_class = np.asarray(points)[np.asarray(labels) == label]
            name = f"{'train' if bold else 'test'} {label}"
            axes.plot(
                of_class[:, 0], of_class[:, 1], linestyle="none", marker="o", label=name,
                zorder=3 if bold else 2, **style,
            )  # fmt: skip
    axes.set_xlim(float(np.min(network.x)), float(np.max(network.x)))
    axes.set_ylim(float(np.min(network.y)), float(np.max(network.y)))
    axes.set_title(f"{method_style(network.method).legend} (test {100 * network.test_accuracy:.1f}%)")
    axes.set_xlabel("input 1")
    axes.set_ylabel("input 2")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
