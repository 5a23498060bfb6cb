"""A row per method, a column per panel and x."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml

from lmsweep.config.sweeps import sweep_folder
from lmsweep.figures.drawing import methods
from lmsweep.figures.drawing.methods import draw_methods, methods_page
from lmsweep.figures.drawing.style import method_style
from lmsweep.figures.spec import FigureSpec, parse_figure
from lmsweep.figures.words import NOTHING
from tests.figures.drawing.boxes import check_nothing_overlaps

XS = {"noise": (0.0, 0.4, 0.8), "data": (0.068, 1.0), "robust": (0.05, 0.1)}


def spec() -> FigureSpec:
    file = sweep_folder() / "figX_methods.yaml"
    return parse_figure(yaml.safe_load(file.read_text())["figure"], file)


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for panel, xs in XS.items():
        for x in xs:
            for method in spec().methods:
                clean = (panel, x) in (("noise", 0.0), ("data", 1.0))
                mean = 0.5 if clean else rng.random()
                run = "clean" if clean else f"{panel}{x}"
                rows.append({"panel": panel, "x": x, "method": method, "mean": mean, "selected": run, "n": 3})
    found = pd.DataFrame(rows)
    return found.assign(
        low=found["mean"] - 0.05, high=found["mean"] + 0.05, values=found["mean"].map("{0} {0}".format)
    )


def test_columns_have_the_means_of_their_methods_and_repeat_nothing(tmp_path, monkeypatch):
    costs = tmp_path / "bench.json"
    costs.write_text(json.dumps({"method_steps/mnist, gce": {"value": 1.25}}))
    monkeypatch.setattr(methods, "COSTS", costs)
    data = table()
    figure = draw_methods(data, spec(), "smoke scale")
    titles = [axes.get_title().replace("\n", " ") for axes in figure.axes]
    assert titles == [
        *("Wrong labels 0%", "Wrong labels 40%", "Wrong labels 80%", "68 images 6.8%"),
        *("Worst attack epsilon 0.05", "Worst attack epsilon 0.1", "cost of a step"),
    ]
    at_40 = {line.get_label(): line for line in figure.axes[1].get_lines()}
    for i, method in enumerate(spec().methods):
        rows = data[(data["panel"] == "noise") & (data["x"] == 0.4) & (data["method"] == method)]
        assert np.array(at_40[method].get_data()).T.tolist() == [
            [pytest.approx(100 * rows["mean"].item()), i]
        ]
    costs_drawn = {line.get_label(): line.get_xdata()[0] for line in figure.axes[-1].get_lines()}
    assert (costs_drawn["xent"], costs_drawn["gce"]) == (1.0, 1.25)
    check_nothing_overlaps(figure)


def test_the_table_has_the_numbers_of_the_picture(tmp_path, monkeypatch):
    costs = tmp_path / "bench.json"
    where = {"commit": "0123456789", "machine": {"cpu": "Some CPU"}}
    costs.write_text(
        json.dumps(
            {"method_steps/mnist, gce": {"value": 1.25, "low": 1.2, "high": 1.4, "environment": where}}
        )
    )
    monkeypatch.setattr(methods, "COSTS", costs)
    data = table()
    gone = (data["panel"] == "robust") & (data["method"] == "mma")
    lines = methods_page(data[~gone], spec(), "smoke scale").splitlines()
    cells = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in lines if " | " in line
    }
    assert cells["method"][1:4] == ["Wrong labels 40%", "Wrong labels 80%", "68 images 6.8%"]
    assert cells["MMA"][4:] == [NOTHING, NOTHING, f"{NOTHING} |"]
    assert (cells["Cross-entropy"][-1], cells["GCE"][-1]) == ("1.00 |", "1.25 [1.20, 1.40] |")
    assert "Some CPU at commit 0123456." in lines[-1]
    at_40 = data[(data["panel"] == "noise") & (data["x"] == 0.4)].set_index("method")["mean"]
    for method, name in (("gce", "GCE"), ("trades", "TRADES")):
        assert cells[name][1].replace("**", "") == f"{100 * at_40[method]:.1f}% ± 5.0"
    best = [name for name, row in cells.items() if row[1].startswith("**")]
    assert best == [method_style(at_40.idxmax()).label]


def test_what_is_missing_is_said():
    data = table()
    gone = (data["panel"] == "robust") & (data["method"] == "mma")
    missing = [{"panel": "robust", "method": "mma", "x": 0.1, "reason": "not trained"}]
    figure = draw_methods(data[~gone], spec(), "smoke scale", missing)
    assert "missing" in [text.get_text() for text in figure.axes[5].texts]
    sentence = "Missing: Worst attack: MMA at 0.1 (not trained)."
    assert sentence in [text.get_text().replace("\n", " ") for text in figure.texts]
