"""Figure 1."""

import warnings

import numpy as np
import pytest
from matplotlib.colors import to_hex

from lmsweep.figures.drawing.curves import REGIONS, Regions, draw_regions
from tests.figures.drawing.boxes import check_nothing_overlaps

AXIS = np.linspace(-2, 2, 81)


def network(method: str = "xent", score=None, accuracy: float = 0.913) -> Regions:
    rng = np.random.default_rng(0)
    train, test = rng.uniform(-1.9, 1.9, (10, 2)), rng.uniform(-1.9, 1.9, (50, 2))
    x, y = np.meshgrid(AXIS, AXIS)
    return Regions(
        method=method,
        x=AXIS,
        y=AXIS,
        score=y - 0.5 * x if score is None else score,
        train_points=train,
        train_labels=(train[:, 1] > 0).astype(int),
        test_points=test,
        test_labels=(test[:, 1] > 0).astype(int),
        test_accuracy=accuracy,
    )


def test_every_sample_is_drawn_with_its_class_and_training_ones_are_bold():
    axes = draw_regions([network()], "Toy", "smoke scale").axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    data = network()
    for name, points, labels in (
        ("train", data.train_points, data.train_labels),
        ("test", data.test_points, data.test_labels),
    ):
        for label in (0, 1):
            assert pytest.approx(points[labels == label]) == np.array(lines[f"{name} {label}"].get_data()).T
    assert lines["train 0"].get_markersize() > lines["test 0"].get_markersize()
    assert lines["train 0"].get_zorder() > lines["test 0"].get_zorder()
    assert len({to_hex(line.get_color()) for line in lines.values()}) == 4


def pixel(figure, axes, x: float, y: float) -> str:
    figure.canvas.draw()
    column, row = axes.transData.transform((x, y)).astype(int)
    image = np.asarray(figure.canvas.buffer_rgba())
    return to_hex(image[image.shape[0] - 1 - row, column, :3] / 255)


def test_yellow_is_where_the_score_is_positive():
    score = np.tile(np.where(AXIS > 0, 1.0, -1.0), (81, 1))  # class 1 on the right, whatever y
    data = network(score=score)
    empty = np.zeros((0, 2))
    bare = {
        "train_points": empty,
        "train_labels": empty[:, 0],
        "test_points": empty,
        "test_labels": empty[:, 0],
    }
    figure = draw_regions([Regions(**{**data.__dict__, **bare})], "Toy", "smoke scale")
    assert pixel(figure, figure.axes[0], -1.0, 1.0) == REGIONS[0]
    assert pixel(figure, figure.axes[0], 1.0, -1.0) == REGIONS[1]


def test_method_and_accuracy_stand_on_top_and_nothing_overlaps():
    figure = draw_regions([network(), network("margin_linf_even:5", accuracy=0.978)], "Toy", "smoke scale")
    assert figure.axes[0].get_title() == "Cross-entropy (test 91.3%)"
    assert figure.axes[1].get_title().endswith("(test 97.8%)")
    check_nothing_overlaps(figure)


@pytest.mark.parametrize("score", [np.ones((81, 81)), -np.ones((81, 81))])
def test_a_network_that_knows_one_class_has_no_boundary(score):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw_regions([network(score=score)], "Toy", "smoke scale")
    assert pixel(figure, figure.axes[0], 1.97, 1.97) == REGIONS[int(score[0, 0] > 0)]
