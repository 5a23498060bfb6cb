"""Where things are on a drawn figure."""

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox


def boxes(figure: Figure) -> dict[str, list[Bbox]]:
    """In pixels: axes with their labels, legends, and the texts around them (title, subtitle, caption)."""
    figure.set_dpi(200)  # as saved: letters are wider than at 100, where they are fitted to coarser pixels
    figure.canvas.draw()
    return {
        "axes": [axes.get_tightbbox() for axes in figure.axes if axes.axison],
        "legend": [legend.get_window_extent() for legend in figure.legends],
        "texts": [text.get_window_extent() for text in figure.texts if text.get_text()],
    }


def check_nothing_overlaps(figure: Figure) -> None:
    """Nothing lies over anything else, nor beyond the paper's edge."""
    found = [(kind, box) for kind, group in boxes(figure).items() for box in group]
    edge = figure.bbox
    for i, (kind, box) in enumerate(found):
        assert box.x0 >= edge.x0 - 1, f"{kind} is cut off: {box}"
        assert box.x1 <= edge.x1 + 1, f"{kind} is cut off: {box}"
        assert box.y0 >= edge.y0 - 1, f"{kind} is cut off: {box}"
        assert box.y1 <= edge.y1 + 1, f"{kind} is cut off: {box}"
        for other, rival in found[:i]:
            assert not box.padded(-1).overlaps(rival.padded(-1)), f"{kind} is over {other}"
