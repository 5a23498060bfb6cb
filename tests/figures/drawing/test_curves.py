"""What is drawn is the table."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from lmsweep.errors import ConfigError
from lmsweep.figures.drawing.curves import caption, draw_curves
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.record import aggregate, ordered
from tests.figures.drawing.boxes import boxes, check_nothing_overlaps
from tests.figures.examples import FIGURE, METHODS, cell, figure, points

NOISE, WHITE = FIGURE["panels"]
MISSING = [
    {"panel": "noise", "method": "margin_l2_all", "x": 0.4, "reason": "failed: it diverged"},
    {"panel": "noise", "method": "xent", "x": 0.8, "reason": "not trained"},
    {"panel": "noise", "method": "margin_l2_all", "x": 0.8, "reason": "failed: it diverged"},
]


def table(n: int = 3):
    rng = np.random.default_rng(0)
    gone = {(cell["method"], cell["x"]) for cell in MISSING}
    xs = (0.8, 0.0, 0.2, 0.4, 0.6)
    noise = [cell("noise", m, x, list(rng.random(n))) for m in METHODS for x in xs if (m, x) not in gone]
    white = [cell("white", m, x, list(rng.random(n))) for m in ("xent", "margin_l2_all") for x in (0.0, 0.1)]
    return ordered(aggregate(points(*noise, *white)), figure())


def drawn(**changes) -> Figure:
    return draw_curves(table(), figure(**changes), "smoke scale", MISSING)


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_every_curve_has_the_numbers_of_the_table():
    for axes, panel, factor in zip(drawn().axes, ("noise", "white"), (100, 1), strict=True):
        rows = table()[lambda t, panel=panel: t["panel"] == panel]
        found = lines(axes)
        assert set(rows["method"]) <= set(found)
        for method, curve in rows.groupby("method"):
            xy = np.array(found[method].get_data()).T
            assert xy[~np.isnan(xy[:, 1])] == pytest.approx(curve[["x", "mean"]].to_numpy() * [factor, 100])
            assert to_hex(found[method].get_color()) == method_style(method).color


def test_every_band_has_the_interval_of_the_table():
    axes = drawn().axes[1]
    rows = table()[lambda t: t["panel"] == "white"]
    bands = {to_hex(b.get_facecolor()[0]): b for b in axes.collections if isinstance(b, PolyCollection)}
    for method, curve in rows.groupby("method"):
        corners = bands[method_style(method).color].get_paths()[0].vertices
        expected = {
            (x, 100 * y) for _, r in curve.iterrows() for x, y in ((r["x"], r["low"]), (r["x"], r["high"]))
        }
        for corner in expected:
            assert np.isclose(corners, corner).all(axis=1).any()


def test_a_point_without_neighbours_shows_its_interval_as_a_bar():
    one = ordered(aggregate(cell("white", "xent", 0.1, [0.3, 0.4, 0.5])), figure())
    bars = [
        c
        for c in draw_curves(one, figure(), "smoke scale").axes[1].collections
        if isinstance(c, LineCollection)
    ]
    segments = np.concatenate([s for bar in bars for s in bar.get_segments()])
    assert segments == pytest.approx(np.array([[0.1, 40 - 24.8414], [0.1, 40 + 24.8414]]), abs=1e-3)


@pytest.mark.parametrize("n", [1, 2])
def test_few_seeds_have_no_band(n):
    axes = draw_curves(table(n), figure(), "smoke scale").axes[0]
    assert not any(len(c.get_paths()) for c in axes.collections)


def test_every_seed_is_a_point_beside_its_mean():
    axes, rows = drawn().axes[1], table()[lambda t: t["panel"] == "white"]
    for method, curve in rows.groupby("method"):
        seeds = lines(axes)[f"seeds of {method}"]
        expected = [(r["x"], 100 * float(y)) for _, r in curve.iterrows() for y in r["values"].split()]
        found = np.array(seeds.get_data()).T
        assert found == pytest.approx(np.array(expected))
        here, beside = axes.transData.transform(expected[0]), seeds.get_transform().transform(expected[0])
        assert (beside - here) == pytest.approx([axes.figure.dpi * 4 / 72, 0])


def test_lines_do_not_pass_over_missing_cells():
    y = lines(drawn().axes[0])["margin_l2_all"].get_ydata()
    assert np.isnan(y).tolist() == [False, False, True, False, True]


def test_missing_cells_are_crosses_on_the_axis_in_the_methods_colour_and_listed():
    picture = drawn()
    axes = picture.axes[0]
    crosses = [line for line in axes.get_lines() if line.get_label().startswith("missing")]
    found = {(line.get_label(), float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in crosses}
    assert found == {
        ("missing margin_l2_all", 40.0, 0.0),
        ("missing xent", 80.0, 0.0),
        ("missing margin_l2_all", 80.0, 0.04),  # above the other
    }
    assert all(line.get_marker() == "x" for line in crosses)
    assert all(to_hex(x.get_color()) == method_style(x.get_label().split()[1]).color for x in crosses)
    bottom = axes.get_window_extent().y0
    first = next(line for line in crosses if line.get_ydata()[0] == 0)
    assert first.get_window_extent().y0 < bottom < first.get_window_extent().y1
    text = picture.texts[2].get_text().replace("\n", " ")
    for words in ("Margin l2, all layers at 40%, 80% (failed: it", "Cross-entropy at 80% (not trained)"):
        assert words in text


def test_a_long_caption_is_cut_and_says_so():
    spec = figure()
    cells = [{**MISSING[0], "reason": f"reason {i}"} for i in range(9)]
    assert caption(cells, spec).endswith("; and 3 more, listed in the JSON.")
    assert caption([], spec) == ""


def test_legend_has_every_method_and_reference_and_is_not_over_the_axes():
    picture = drawn()
    (legend,) = picture.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [method_style(method).legend for method in METHODS] + ["Others 2017"]
    found = boxes(picture)
    assert not any(found["legend"][0].overlaps(box) for box in found["axes"])
    check_nothing_overlaps(picture)


def test_references_are_drawn_in_units_of_the_axes_and_only_in_their_panel():
    one, two = (lines(axes) for axes in drawn().axes)
    x, y = one["Others 2017"].get_data()
    assert x == pytest.approx([20, 40])
    assert y == pytest.approx([90, 85])
    assert "Others 2017" not in two


def test_axes_say_what_they_are_and_the_title_scale_and_n():
    picture = drawn()
    assert picture.axes[0].get_xlabel() == "label noise (%)"
    assert picture.axes[0].get_ylabel() == "test accuracy (%)"
    assert picture.axes[1].get_xlabel() == "epsilon"
    assert [axes.get_title() for axes in picture.axes] == ["Noisy labels", "White-box"]
    texts = [text.get_text() for text in picture.texts]
    assert texts[0] == "MNIST, noisy labels"
    assert texts[1].startswith("smoke scale, n = 3 seeds")


def test_ticks_are_at_the_points():
    assert drawn().axes[0].get_xticks().tolist() == pytest.approx([0, 20, 40, 60, 80])


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (9, 3)])
def test_any_number_of_panels_fits(count, columns):
    panels = [{**NOISE, "name": f"p{i}", "methods": METHODS} for i in range(count)]
    cells = [cell(p["name"], m, x, [0.5, 0.6]) for p in panels for m in METHODS for x in (0, 0.4)]
    spec = figure(panels=panels, references=[], attacks={})
    picture = draw_curves(aggregate(points(*cells)), spec, "smoke scale")
    assert sum(axes.axison for axes in picture.axes) == count
    assert picture.get_figwidth() == pytest.approx(3.4 * columns)
    check_nothing_overlaps(picture)


def test_a_figure_without_any_run_is_drawn_as_missing():
    cells = [{"panel": "white", "method": m, "x": 0.1, "reason": "not trained"} for m in WHITE["methods"]]
    picture = draw_curves(aggregate(cell("noise", "xent", 0, [])), figure(), "smoke scale", cells)
    assert "no runs" in picture.texts[1].get_text()
    check_nothing_overlaps(picture)


def test_zero_on_a_log_axis_is_refused():
    panels = [{**NOISE, "x": {**NOISE["x"], "scale": "log"}}, WHITE]
    with pytest.raises(ConfigError, match=r"x\.scale=log is not allowed in panel noise"):
        drawn(panels=panels)


def test_a_log_axis_has_plain_numbers_where_the_data_is():
    panels = [{**NOISE, "x": {**NOISE["x"], "scale": "log"}}, WHITE]
    cells = [cell("noise", "xent", x, [0.5]) for x in (0.00125, 0.01, 1.0)]
    axes = draw_curves(aggregate(points(*cells)), figure(panels=panels, references=[]), "smoke scale").axes[0]
    axes.figure.canvas.draw()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.125", "1", "100"]
