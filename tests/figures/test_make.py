"""A committed store gives exactly these numbers, verdicts and files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lmsweep.config.run import parse
from lmsweep.config.sweeps import GridConfig, Sweep, read_sweep
from lmsweep.evaluation.jobs import judged
from lmsweep.figures.make import data_of, make_figure
from lmsweep.store.store import Store
from tests.figures import golden

HERE = Path(golden.__file__).parent


@pytest.fixture
def sweep(tmp_path) -> Sweep:
    shutil.copytree(HERE / "outputs", tmp_path / "outputs")
    configs = [
        parse({**yaml.safe_load(path.read_text()), "outputs": str(tmp_path / "outputs")})
        for path in sorted((tmp_path / "outputs").glob("runs/*/config.yaml"))
    ]
    figure = yaml.safe_load((HERE / "figure.yaml").read_text())
    return Sweep(
        "golden", "smoke", {config.id: config for config in configs}, figure, GridConfig(same_data=True)
    )


def test_the_golden_store_gives_the_golden_numbers(sweep):
    picture, made = make_figure(sweep, judged)
    written = picture.parent
    assert (written / "golden.csv").read_text() == (HERE / "expected.csv").read_text()
    record = json.loads((written / "golden.json").read_text())
    told = {"table": record["table"], "checksum": record["checksum"]}
    assert record == {**made.model_dump(), **told}
    found = {claim["id"]: [claim[key] for key in ("verdict", "ours", "n")] for claim in record["claims"]}
    assert found == json.loads((HERE / "expected.json").read_text())
    assert record["missing"] == [
        {"panel": "noise", "method": "hinge", "x": 0.4, "reason": "failed: it broke"}
    ]
    # The setting with the better validation accuracy, not the one with the better test accuracy.
    chosen = {(row["method"], row["x"]): row["hyperparameters"] for row in record["selected"]}
    assert chosen[("margin_l2_all", 0.4)]["margin.gamma"] == 1.0
    assert chosen[("xent", 0.4)] == {"method.xent_weight": 1.0}  # hinge has another
    assert all(len(row["runs"]) == 3 for row in record["selected"])
    assert len(record["runs"]) == 12
    assert "cost" not in record


def test_the_same_store_gives_the_same_bytes(sweep):
    first = make_figure(sweep, judged)[0].parent
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    assert sorted(before) == ["golden.csv", "golden.json", "golden.pdf", "golden.png"]
    make_figure(sweep, judged)
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before


def test_values_are_not_compared_where_the_data_is_not_the_papers(sweep):
    other = replace(sweep, grid=GridConfig(same_data=False))
    verdicts = {claim.id: claim.verdict for claim in make_figure(other, judged)[1].claims}
    assert (verdicts["value"], verdicts["margin_wins"]) == ("not run", "holds")


def test_a_figure_of_an_empty_store_says_what_is_missing(sweep):
    shutil.rmtree(Store(sweep.outputs).root)
    _, record = make_figure(sweep, judged)
    assert {cell.reason for cell in record.missing} == {"not trained"}
    assert len(record.missing) == 5
    assert {claim.verdict for claim in record.claims} == {"not run"}


def test_a_part_of_the_data_is_named_when_every_run_has_the_same():
    assert data_of(read_sweep("fig2_mnist_noise", "smoke")) == "digits"
    assert data_of(read_sweep("fig2_mnist_noise", "smoke", ["data.fraction=0.05"])) == "5% of digits"
    assert data_of(read_sweep("fig2_mnist_data", "smoke")) == "digits"  # an axis, which the figure shows
