"""Bytes of pictures, and words about n."""

import os
import subprocess
import sys

import pytest
from matplotlib.lines import Line2D

from lmsweep.figures.drawing.layout import Sheet, save, seeds_phrase
from tests.figures.drawing.boxes import boxes, check_nothing_overlaps

DRAW = """
import sys
from pathlib import Path
from tests.figures.drawing.test_curves import drawn
from lmsweep.figures.drawing.layout import save
save(drawn(), Path(sys.argv[1]))
"""


def test_pictures_are_the_same_bytes_in_another_process(tmp_path):
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", DRAW, str(tmp_path / f"figure{seed}")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
    for suffix, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        one, two = ((tmp_path / f"figure{seed}{suffix}").read_bytes() for seed in "12")
        assert one.startswith(start)
        assert len(one) > 5000
        assert one == two


def test_a_name_with_a_dot_keeps_it(tmp_path):
    sheet = Sheet(1, 1, 3.4, 2.0)
    figure = sheet.finish("a", "b", [Line2D([], [])], ["c"])
    assert [path.name for path in save(figure, tmp_path / "fig1.5")] == ["fig1.5.png", "fig1.5.pdf"]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 3), (2, 2), (3, 2)])
@pytest.mark.parametrize("entries", [1, 9])
def test_legend_and_caption_stand_below_the_axes_whatever_their_length(rows, columns, entries):
    sheet = Sheet(rows, columns, 3.4, 2.2)
    for row in sheet.axes:
        for axes in row:
            axes.set(xlabel="epsilon", ylabel="test accuracy (%)", title="Title")
    caption = "Missing: a method that has a name of some length, at 10%. " * 8
    title = "A title that is so long that it takes two lines in a single column"
    subtitle = "laptop scale on 20% of cifar10, n = 2 to 3 seeds; bands: 95% interval"
    figure = sheet.finish(
        title, subtitle, [Line2D([], [])] * entries, ["Margin of some norm"] * entries, caption
    )
    check_nothing_overlaps(figure)
    found = boxes(figure)
    assert found["legend"][0].y1 < min(box.y0 for box in found["axes"])


def test_axes_have_the_size_that_was_asked_for_whatever_stands_around_them():
    sizes = set()
    for caption, entries in (("", 1), ("word " * 100, 12)):
        sheet = Sheet(1, 2, 3.4, 2.2)
        figure = sheet.finish(
            "a", "b", [Line2D([], [])] * entries, ["A label of some length"] * entries, caption
        )
        box = figure.axes[0].get_window_extent()
        sizes.add((round(box.width), round(box.height)))
    assert len(sizes) == 1


@pytest.mark.parametrize(
    ("counts", "phrase"),
    [
        ([2, 2], "smoke scale, n = 2 seeds"),
        ([1, 3, 2], "smoke scale, n = 1 to 3 seeds"),
        ([1], "smoke scale, n = 1 seed"),
        ([], "smoke scale, no runs"),
    ],
)
def test_how_many_seeds(counts, phrase):
    assert seeds_phrase("smoke scale", counts) == phrase
