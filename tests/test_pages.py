"""Pages of tasks, from an empty folder: every block runs as shown.

On the page of the first hour by the installed command, on the others by one that starts in less time.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm_shell import lmsweep_in_path

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^( *)```(bash|python)(?: ([\w.]+))?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def warm_command() -> Iterator[str]:
    with lmsweep_in_path() as folder:
        yield f"{folder}{os.pathsep}"


def follow(page: str, folder: Path, first: str = "") -> list[str]:
    """Do what a page of docs/ says in `folder`; return what each of its blocks printed.

    Commands are looked for in `first`, and then in the environment that has lmsweep.
    """
    path = f"{first}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LMSWEEP_")}
    printed = []
    for _, language, file, block in BLOCK.findall((DOCS / page).read_text()):
        body = textwrap.dedent(block)
        if file:
            (folder / file).write_text(body)
            continue
        done = subprocess.run(
            ["bash", "-euc", body] if language == "bash" else [sys.executable, "-c", body],
            cwd=folder,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        printed.append(done.stdout)
    return printed


def rows(printed: str) -> list[list[str]]:
    """The rows of a table of Markdown, without its rule."""
    lines = [line for line in printed.splitlines() if line.startswith("|") and "---" not in line]
    return [[word.strip() for word in line.split("|")[1:-1]] for line in lines]


@pytest.mark.slow
def test_the_first_hour(tmp_path):
    one, _, sweep, tables, figure, python = follow("first-hour.md", tmp_path)
    assert re.search(r"outputs/runs/\w{12}  validation \d\d\.\d+%  test \d\d\.\d+%", one)
    assert "first  18 done" in sweep
    assert "at chance level" not in sweep  # examples must be settings that work
    head, *cells = rows(tables)
    assert head == ["method", "data.label_noise", "margin.gamma", "mean", "95% interval", "n"]
    assert len(cells) == 6
    assert sum("**" in word for cell in cells for word in cell) == 1
    assert (tmp_path / "first.tex").read_text().startswith(r"\begin{tabular}{lllrlr}")
    assert len((tmp_path / "first.csv").read_text().splitlines()) == 19
    assert "18 runs and evaluations added, 0 were there already" in tables
    assert len(list((tmp_path / "elsewhere" / "runs").glob("*/results.json"))) == 18
    assert not list((tmp_path / "elsewhere").rglob("*.ckpt"))
    assert (tmp_path / "outputs" / "report" / "index.html").exists()
    assert "fig10_mnist_gaussian.png" in figure
    assert "tensor([" in python


@pytest.mark.slow
def test_data_of_your_own(tmp_path, warm_command):
    _, arrays, function = follow("own-data.md", tmp_path, warm_command)
    for printed in (arrays, function):
        assert float(re.search(r"test (\d+\.\d+)%", printed)[1]) > 80
        assert "chance" not in printed


@pytest.mark.slow
def test_a_model_of_your_own(tmp_path, warm_command):
    table, attacked = follow("own-model.md", tmp_path, warm_command)
    head, *cells = rows(table)
    assert head[:3] == ["method", "model.hidden", "mean"]
    assert [(cell[1], cell[-1]) for cell in cells] == [("16", "2"), ("64", "2")]
    assert all(float(cell[2].strip("*%")) > 80 for cell in cells)
    assert "fgsm from itself" in attacked
    logs = [path.read_text() for path in tmp_path.glob("outputs/runs/*/log.txt")]
    assert all("step 20: weights of norm" in log for log in logs)


@pytest.mark.slow
def test_how_many_seeds(tmp_path, warm_command):
    table, told = follow("seeds.md", tmp_path, warm_command)
    assert [cell[-1] for cell in rows(table)[1:]] == ["4", "4"]
    assert re.search(r"difference [+-]0\.\d+, standard deviation 0\.\d+: \d+ seeds resolve 0\.01", told)


@pytest.mark.slow
def test_a_figure_without_claims(tmp_path, warm_command):
    printed, _ = follow("own-figure.md", tmp_path, warm_command)
    page = Path(tmp_path / printed.splitlines()[1]).read_text()
    assert page.count("data:image/png;base64,") == 1
    assert "A grid without a figure file, 18 of 18 runs done" in page
    assert (tmp_path / "noise.tex").read_text().startswith(r"\begin{tabular}")
    assert (tmp_path / "noise.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_load_and_analyse(tmp_path, warm_command):
    first, second = follow("analyse.md", tmp_path, warm_command)
    folder, name = re.search(r"^\w+ 0\.\d+ (.*/(\w+))$", first, re.MULTILINE).groups()
    assert (tmp_path / folder / "results.json").exists()
    assert re.search(r"^xent +0\.\d+$", first, re.MULTILINE)
    assert re.search(rf"{name} +done +margin_linf_all", first)
    assert re.search(r"half of the images lie farther than 0\.\d+ from a boundary", second)


@pytest.mark.slow
def test_publish(tmp_path, warm_command):
    _, second = follow("publish.md", tmp_path, warm_command)
    assert "runs and evaluations added, 0 were there already" in second
    (picture,) = tmp_path.glob("results/*/fig10_mnist_gaussian.png")
    assert (picture.parent / "README.md").exists()
    assert list((tmp_path / "theirs").rglob("*.ckpt"))


@pytest.mark.slow
def test_the_protocol_for_gamma(tmp_path, warm_command):
    one, table = follow("choosing.md", tmp_path, warm_command)
    assert "distance/train/input" in (tmp_path / one.split()[0] / "metrics.jsonl").read_text()
    head, *cells = rows(table)
    assert head[:3] == ["method", "margin.gamma", "mean"]
    assert [cell[1] for cell in cells] == ["0.02", "0.05", "0.1"]
    assert all(float(cell[2].strip("*%")) > 50 for cell in cells)  # settings that work


@pytest.mark.slow
def test_other_methods(tmp_path, warm_command):
    (printed,) = follow("methods.md", tmp_path, warm_command)
    assert re.search(r"outputs/runs/\w{12}  validation \d\d\.\d+%", printed)
    head, *cells = rows(printed)
    assert head[:3] == ["method", "data.label_noise", "mean"]
    assert {cell[0] for cell in cells} == {"xent", "gce", "sce"}
    assert all(float(cell[2].strip("*%")) > 50 for cell in cells)  # settings that work
