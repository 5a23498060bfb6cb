"""Two runs side by side, the cells of a sweep as a table, and a trained network from Python."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import lmsweep
from lmsweep.commands.compare import as_csv, as_latex, as_markdown, cells, compare
from lmsweep.commands.store import results_table
from lmsweep.data.digits import load as digits
from lmsweep.errors import UserError

TINY = {"max_steps": 20, "val_every": 10, "batch_size": 16}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Cross-entropy with three seeds and the margin loss with one, in one store."""
    outputs = tmp_path_factory.mktemp("store")
    keys = {"trainer": TINY, "outputs": str(outputs), "model": {"width": 2}}
    runs = [lmsweep.run(method="xent", seed=seed, **keys) for seed in range(3)]
    return outputs, [*runs, lmsweep.run(method="margin", margin={"gamma": 2}, **keys)]


def test_two_runs_differ_in_what_was_changed(trained):
    outputs, runs = trained
    head, *rows = (line.split() for line in compare(outputs, runs[0].id, runs[1].id[:8]).splitlines())
    assert head == [runs[0].id, runs[1].id]
    assert rows[0] == ["seed", "0", "1"]
    told = {row[0]: row[1:] for row in rows if row}
    expected = [f"{run.metrics['test_loss']:.6g}" for run in runs[:2]]
    assert told["test_loss"] == expected
    assert not any(key.startswith(("outputs", "tracking", "model")) for key in told)
    assert "are the same" in compare(outputs, runs[0].id, runs[0].id)
    with pytest.raises(UserError, match="There is no run nope"):
        compare(outputs, runs[0].id, "nope")


def test_the_cells_of_a_table_are_means_with_students_interval(trained):
    outputs, runs = trained
    table = cells(results_table(outputs), "test_loss").set_index("method")
    values = [run.metrics["test_loss"] for run in runs[:3]]
    expected = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert table.loc["xent", ["mean", "low", "high", "n"]].tolist() == pytest.approx(
        [np.mean(values), *expected, 3]
    )
    assert (table.loc["margin_l2_all", "n"], np.isnan(table.loc["margin_l2_all", "low"])) == (1, True)
    with pytest.raises(UserError, match=r"--metric speed is not allowed: it must be one of .*test_accuracy"):
        cells(results_table(outputs), "speed")


def test_formats_mark_the_best_and_escape_what_latex_would_read():
    table = pd.DataFrame(
        {"method": ["xent", "margin_l2_all"], "data.label_noise": ["0", "0.4"], "mean": [0.9, 0.95]}
        | {"low": [0.8, np.nan], "high": [1.0, np.nan], "n": [3, 1]}
    )
    assert as_markdown(table, "test_accuracy").splitlines() == [
        "| method | data.label_noise | mean | 95% interval | n |",
        "|---|---|---|---|---|",
        "| xent | 0 | 90.00% | 80.00% to 100.00% | 3 |",
        "| margin_l2_all | 0.4 | **95.00%** | one seed | 1 |",
    ]
    assert as_markdown(table, "test_loss").count("**0.9**") == 1  # of a loss the lowest is best
    latex = as_latex(table, "test_accuracy")
    assert r"margin\_l2\_all & 0.4 & \textbf{95.00\%} & one seed & 1 \\" in latex
    assert latex.startswith(r"\begin{tabular}{llrlr}")
    assert not re.search(r"(?<!\\)[%_]", latex)
    assert as_csv(table, "test_accuracy").splitlines()[1] == "xent,0,0.9,0.8,1.0,3"


def test_a_loaded_network_predicts_what_the_run_was_tested_with(trained):
    outputs, runs = trained
    network = lmsweep.load(runs[0])
    test = digits().test
    classes = network.predict(test.x)
    assert (classes == test.y).float().mean().item() == pytest.approx(runs[0].metrics["test_accuracy"])
    assert torch.equal(network.predict(test.x[:, 0].numpy()), classes)  # without the channel, as an array
    assert torch.equal(lmsweep.load(runs[0].id[:8], outputs)(test.x[:3]).argmax(1), classes[:3])
    with pytest.raises(ValueError, match=r"must be \(n, 1, 8, 8\)"):
        network.predict(test.x[:, :, :4])
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        network.predict(16 * test.x)
