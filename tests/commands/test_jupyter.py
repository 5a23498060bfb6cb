"""lmsweep in a real Jupyter kernel: what the cells print, and that bars, workers and Lightning get along."""

import nbformat
import pytest
from nbclient import NotebookClient

TRAIN = """
short = {"max_steps": 20, "val_every": 10, "batch_size": 16}
one = lmsweep.run(method="xent", trainer=short, model={"width": 2})
"""
SWEEP = """
runs = lmsweep.sweep("fig10_mnist_gaussian", seed="0,1", trainer=short, model={"width": 2})
print(len(runs), "rows of", len(lmsweep.results()))
"""
LOAD = """
classes = lmsweep.load(one).predict([[[0.0] * 8] * 8] * 2)
print(tuple(classes.shape), hasattr(pl, "Trainer"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [("pytorch_lightning as pl", "lmsweep"), ("lmsweep", "pytorch_lightning as pl")]
)
def test_a_notebook_trains_sweeps_reads_and_loads(tmp_path, monkeypatch, order):
    monkeypatch.setenv("LMSWEEP_OUTPUTS", str(tmp_path / "outputs"))
    imports = "\n".join(f"import {name}" for name in order)
    cells = [nbformat.v4.new_code_cell(source) for source in (imports, TRAIN, SWEEP, LOAD)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    trained, swept, loaded = ["".join(_texts(cell)) for cell in notebook.cells[1:]]
    (bar,) = [line for line in trained.splitlines() if "<progress" in line]  # one, which was moved
    assert bar.startswith("<progress value='20' max='20'></progress> xent on digits: step 20/20 validation ")
    assert "[8/8]" in swept
    assert "8 rows of 9" in swept
    assert loaded == "(2,) True\n"


def _texts(cell):
    for output in cell.outputs:
        yield output.get("text") or output["data"].get("text/html", "")
