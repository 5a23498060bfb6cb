"""Draw figures 12 to 14: the mean distance to the boundary while a network trains."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lmsweep.figures.drawing.layout import Sheet, say_missing, seeds_phrase, with_grid
from lmsweep.figures.drawing.style import BAND, LINE_WIDTH, RC, SPLITS, method_style
from lmsweep.figures.statistics import ENOUGH_SEEDS

LAYERS = {"input": "input layer", "middle": "middle layer", "output": "output layer"}


def draw_distances(
    table: pd.DataFrame,
    title: str,
    scale: str,
    layers: Mapping[str, str] | None = None,
    methods: Sequence[str] = (),
    ylabel: str = "distance to boundary",
) -> Figure:
    """Layers below each other, methods beside each other, one line per split; a row has one y axis.

    `table` has the columns method, layer, split, step, mean, low, high, n and values; `layers` says what to
    call them and in which order they come (default: input, middle, output), `methods` which are to be shown,
    even if the table does not have them.
    """
    names = layers or LAYERS
    rows = list(names)
    methods = list(methods) or list(dict.fromkeys(table["method"]))
    sheet = Sheet(len(rows), len(methods), 3.0, 1.75)
    with matplotlib.rc_context(RC):
        for i, layer in enumerate(rows):
            for j, method in enumerate(methods):
                axes = sheet.axes[i][j]
                if j:
                    axes.sharey(sheet.axes[i][0])
                mine = table[(table["layer"] == layer) & (table["method"] == method)]
                for split, (color, line, _) in SPLITS.items():
                    curve = mine[mine["split"] == split].sort_values("step")
                    step, mean, low, high, n = (
                        curve[name].to_numpy(dtype=float) for name in ("step", "mean", "low", "high", "n")
                    )
                    axes.plot(step, mean, color=color, linestyle=line, linewidth=LINE_WIDTH, label=split)
                    band: dict[str, Any] = {"color": color, "alpha": BAND, "linewidth": 0}
                    axes.fill_between(step, low, high, where=(n >= ENOUGH_SEEDS).tolist(), **band)
                    seeds = [
                        (x, float(y)) for x, ys in zip(step, curve["values"], strict=True) for y in ys.split()
                    ]
                    axes.plot(*np.array(seeds).reshape(-1, 2).T, ".", color=color, ms=2, mew=0, alpha=0.7)
                if mine.empty:
                    say_missing(axes)
                axes.set_title(f"{method_style(method).legend}, {names[layer]}")
                axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
                with_grid(axes)
                if i == len(rows) - 1:
                    axes.set_xlabel("training step")
                if j == 0:
                    axes.set_ylabel(ylabel, labelpad=1)  # room for labels such as -0.75
        handles = [
            Line2D([], [], color=color, linestyle=line, linewidth=LINE_WIDTH)
            for color, line, _ in SPLITS.values()
        ]
    subtitle = seeds_phrase(scale, table["n"], bands=True)
    return sheet.finish(title, subtitle, handles, [label for _, _, label in SPLITS.values()])
