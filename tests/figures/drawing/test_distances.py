"""Figures 12 to 14."""

import numpy as np
import pandas as pd
import pytest

from lmsweep.figures.drawing.curves import draw_distances
from lmsweep.figures.drawing.style import SPLITS
from tests.figures.drawing.boxes import check_nothing_overlaps
from tests.figures.examples import figure as figure_of

METHODS = ["xent", "margin_l2_all"]
LAYERS = {"input": "Input", "middle": "Layer 7", "output": "Output"}


def spec(title="CIFAR-10", layers=LAYERS):
    panels = [
        {
            **{"name": name, "title": layer, "methods": METHODS, "x": {"key": "step", "label": "step"}},
            "y": {"metric": f"test_distance_{name}", "label": "distance"},
        }
        for name, layer in layers.items()
    ]
    return figure_of(title=title, kind="distances", panels=panels, attacks={}, references=[])


def table(n: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"method": method, "panel": layer, "split": split, "x": step, "mean": scale * rng.random(), "n": n}
        for method in METHODS
        for layer, scale in (("output", 3.0), ("middle", 20.0), ("input", 100.0))
        for split in SPLITS
        for step in (200, 0, 100)
    ]
    return pd.DataFrame(rows).assign(
        low=lambda t: t["mean"] - 1,
        high=lambda t: t["mean"] + 1,
        values=lambda t: t["mean"].map("{0} {0}".format),
    )


def test_rows_are_layers_columns_are_methods_and_lines_are_splits():
    data = table()
    figure = draw_distances(data, spec(), "smoke scale")
    cells = [(layer, method) for layer in LAYERS for method in METHODS]
    for axes, (layer, method) in zip(figure.axes, cells, strict=True):
        assert axes.get_title().endswith(f", {LAYERS[layer]}")
        lines = {line.get_label(): line for line in axes.get_lines() if line.get_label() in SPLITS}
        assert list(lines) == list(SPLITS)
        for split, line in lines.items():
            rows = data[(data["panel"] == layer) & (data["method"] == method) & (data["split"] == split)]
            expected = rows.sort_values("x")[["x", "mean"]].to_numpy(dtype=float)
            assert pytest.approx(expected) == np.array(line.get_data()).T


def test_a_row_has_one_y_axis_and_rows_have_their_own():
    axes = draw_distances(table(), spec(), "smoke scale").axes
    limits = [a.get_ylim() for a in axes]
    assert limits[0] == limits[1]
    assert limits[2] == limits[3]
    assert limits[0] != limits[2]


def test_the_layout_is_clean_and_the_title_states_n():
    figure = draw_distances(table(), spec(), "smoke scale")
    check_nothing_overlaps(figure)
    assert figure.texts[1].get_text() == "smoke scale, n = 2 seeds (points)"
    assert draw_distances(table(1), spec("a"), "smoke scale").texts[1].get_text() == "smoke scale, n = 1 seed"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["training", "validation", "test"]


def test_labels_of_negative_fractions_fit():
    data = table()
    for name in ("mean", "low", "high"):  # from -1 to 0
        data[name] = (data[name] - data["high"].max()) / (data["high"].max() - data["low"].min())
    check_nothing_overlaps(draw_distances(data, spec(), "smoke scale"))


def test_other_names_of_layers_and_a_method_without_one():
    data = table()
    data = data[(data["panel"] != "middle") | (data["method"] == "xent")]
    figure = draw_distances(data, spec("a", {"middle": "Layer 7", "output": "Logits"}), "smoke scale")
    assert [a.get_title().split(", ")[-1] for a in figure.axes] == ["Layer 7", "Layer 7", "Logits", "Logits"]
    assert figure.axes[1].texts[0].get_text() == "missing"
