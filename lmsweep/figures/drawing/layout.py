"""What stands around the axes, measured in inches: title above, legend and caption below, never over data."""

import textwrap
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from lmsweep.figures.drawing.style import RC
from lmsweep.figures.statistics import ENOUGH_SEEDS
from lmsweep.files import write_atomically

_LEFT, _RIGHT, _BOTTOM = 0.52, 0.12, 0.42  # around each pair of axes, for its labels
_TOP, _HEAD, _TITLE_LINE, _SUBTITLE_LINE, _CAPTION_LINE = 0.22, 0.13, 0.16, 0.13, 0.125


class Sheet:
    """A figure with a grid of axes of fixed size; `finish` adds what stands around them."""

    def __init__(self, rows: int, columns: int, width: float, height: float, used: int | None = None) -> None:
        """`used` is how many pairs of axes, row by row, have something to show; the others are invisible."""
        with matplotlib.rc_context(RC):
            self.figure = Figure(figsize=(columns * width, rows * height))
            FigureCanvasAgg(self.figure)
            grid = self.figure.subplots(rows, columns, squeeze=False)
        self.axes: list[list[Axes]] = grid.tolist()
        self.used: list[Axes] = list(grid.flat)[:used]
        for axes in grid.flat[len(self.used) :]:
            axes.set_axis_off()
        self.width, self.height = width, height

    def finish(
        self, title: str, subtitle: str, handles: Sequence[Artist], labels: Sequence[str], caption: str = ""
    ) -> Figure:
        """Add title, legend and caption, and make the figure just as high as they need."""
        rows, columns = len(self.axes), len(self.axes[0])
        total_width = columns * self.width
        titles = textwrap.wrap(title, int(total_width * 11))
        subtitles = textwrap.wrap(subtitle, int(total_width * 18.5))
        lines = textwrap.wrap(caption, int(total_width * 17.5))
        top = _TOP if any(axes.get_title() for row in self.axes for axes in row) else 0.06
        with matplotlib.rc_context(RC):
            legend = self._legend(handles, labels, total_width)
            legend_height = legend.get_window_extent().height / self.figure.dpi
            below = legend_height + 0.06 + _CAPTION_LINE * len(lines) + (0.04 if lines else 0)
            above = _HEAD + _TITLE_LINE * len(titles) + _SUBTITLE_LINE * len(subtitles)
            height = below + rows * self.height + above
            self.figure.set_size_inches(total_width, height)
            size = (self.width - _LEFT - _RIGHT) / total_width, (self.height - _BOTTOM - top) / height
            for i, row in enumerate(self.axes):
                floor = below + (rows - 1 - i) * self.height + _BOTTOM
                for j, axes in enumerate(row):
                    axes.set_position(((j * self.width + _LEFT) / total_width, floor / height, *size))
            legend.set_loc("upper center")
            legend.set_bbox_to_anchor((0.5, (below - 0.02) / height), transform=self.figure.transFigure)
            write_around(self.figure, titles, subtitles, lines)
        return self.figure

    def _legend(self, handles: Sequence[Artist], labels: Sequence[str], width: float) -> Legend:
        """The legend with as few rows as the width allows."""
        for columns in range(len(labels), 0, -1):
            legend = self.figure.legend(
                handles, labels, ncols=columns, frameon=False, borderaxespad=0, handlelength=2.6
            )
            if columns == 1 or legend.get_window_extent().width / self.figure.dpi < width - 0.1:
                break
            legend.remove()
        return legend


def write_around(
    figure: Figure, titles: Sequence[str], subtitles: Sequence[str], caption: Sequence[str]
) -> None:
    """Write the lines of the title and of the subtitle above everything, and the caption below."""
    width, height = figure.get_size_inches()
    heading: dict[str, Any] = {"ha": "center", "va": "top"}
    y = 1 - 0.05 / height
    figure.text(0.5, y, "\n".join(titles), fontsize=9, weight="bold", **heading)
    y -= (_TITLE_LINE * len(titles) + 0.01) / height
    figure.text(0.5, y, "\n".join(subtitles), fontsize=7.5, color="#444", **heading)
    place = (0.08 / width, 0.03 / height)
    figure.text(*place, "\n".join(caption), va="bottom", fontsize=6.5, color="#555")


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path` as .png (200 dpi) and .pdf; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, content in ((".png", png(figure)), (".pdf", _saved(figure, "pdf", {"CreationDate": None}))):
        written.append(path.with_name(path.name + suffix))
        write_atomically(written[-1], content)
    return written


def png(figure: Figure, dpi: int = 200) -> bytes:
    """The picture; the same figure gives the same bytes."""
    return _saved(figure, "png", {"Software": None}, dpi)


def _saved(figure: Figure, kind: str, metadata: dict[str, None], dpi: int = 200) -> bytes:
    buffer = BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()


def with_grid(axes: Axes) -> None:
    """Light lines behind the data that lead the eye to the y axis."""
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)


def say_missing(axes: Axes) -> None:
    """Write over empty axes that their data is missing."""
    axes.text(0.5, 0.5, "missing", transform=axes.transAxes, ha="center", color="#888")


def seeds_phrase(scale: str, counts: Iterable[int], *, bands: bool = False) -> str:
    """`smoke scale on digits, n = 2 seeds`: how many runs are behind a point, and what its band is."""
    seeds = [int(n) for n in counts]
    if not seeds:
        return f"{scale}, no runs"
    low, high = min(seeds), max(seeds)
    n = f"{high}" if low == high else f"{low} to {high}"
    band = " (points)" if bands and high > 1 else ""
    band += "; bands: 95% interval" if bands and high >= ENOUGH_SEEDS else ""
    return f"{scale}, n = {n} {'seed' if high == 1 else 'seeds'}{band}"
