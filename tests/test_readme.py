"""The README and the documents: their links lead somewhere, their code runs, their commands work as shown."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lmsweep.commands import WORDS
from lmsweep.figures.pages.markdown import with_overview
from lmsweep.figures.record import read_records

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = sorted(
    [README, *ROOT.glob("docs/*.md"), *ROOT.glob("results/*/README.md"), ROOT / "lmsweep/margin/README.md"]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [body for name, body in FENCE.findall(README.read_text()) if name == language]


def anchors(page):
    """The places of a page that a link can lead to, as GitHub names them."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
    for link in links:
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_table_of_figures_is_what_was_published():
    text = README.read_text()
    records = list(read_records(ROOT / "results").values())
    assert records
    assert all(f"/{record.figure}.png" in text for record in records)
    assert with_overview(text, "results", records) == text


def test_the_loss_in_five_lines_trains():
    example, _ = blocks("python")
    torch.manual_seed(0)
    features, classifier = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 3)
    names = {"features": features, "classifier": classifier, "cross_entropy": cross_entropy}
    names |= {"x": torch.randn(32, 4), "y": torch.randint(3, (32,))}
    exec(example, names)  # noqa: S102 - our own page
    assert 0 < names["margin"] < names["loss"]
    names["loss"].backward()
    assert features[0].weight.grad.abs().sum() > 0


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project with the files that the README says to add, and data for them."""
    folder = tmp_path_factory.mktemp("readme") / "lmsweep"
    for name in ("conf", "lmsweep", "sweeps"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    added = re.findall(
        r"`([\w/.]+\.(?:yaml|py))`:\n\n```(?:yaml|python)\n(.*?)^```$",
        README.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert len(added) == len(blocks("yaml")) + 1 == 6
    for name, body in added:
        path = folder / name
        assert not path.exists()
        path.write_text(body)
    data = folder / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=500)
    x = np.clip(rng.normal(0.5, 0.1, (500, 6, 6)) + 0.2 * (y - 1)[:, None, None], 0, 1)
    np.savez(data / "blobs.npz", x=x[:400], y=y[:400], x_test=x[400:], y_test=y[400:])
    return folder


def call(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    environment |= {"LMSWEEP_OUTPUTS": str(folder / "outputs"), "LMSWEEP_DATA": str(folder / "data")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


COMMANDS = [line for body in blocks("") for line in body.splitlines() if line.startswith("lmsweep ")]
TARGETS = [
    line.split("#")[0] for body in blocks("") for line in body.splitlines() if line.startswith("make ")
]


def test_the_readme_has_commands_to_test():
    assert len(COMMANDS) == 5
    assert [target.split()[1] for target in TARGETS] == ["test", "reproduce-figure", "reproduce-figure"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_as_shown(copy, command):
    arguments = ["-m", *shlex.split(command, comments=True)]
    if "RUN" in arguments:
        done = call(copy, "-m", "lmsweep", "method=xent", "trainer.max_steps=4", "trainer.val_every=4")
        arguments[arguments.index("RUN")] = Path(done.split()[0]).name
        assert re.search(r"darkness from itself, .* 0: \d", call(copy, *arguments))
        return
    if "=" in command:  # a run or a sweep: a few steps say as much about the command as a whole training
        arguments += ["trainer.max_steps=4", "trainer.val_every=4", "trainer.log_every=2"]
    out = call(copy, *arguments)
    assert "data=blobs" not in command or re.search(r"validation \d+\.\d+%  test \d+\.\d+%", out)


@pytest.mark.slow
def test_the_figure_that_the_readme_adds_is_drawn(copy):
    (name,) = (target.split("FIG=")[1].strip() for target in TARGETS if "FIG=" in target)
    out = call(copy, "-m", "lmsweep", "reproduce", name, "--scale", "smoke", "trainer.max_steps=50")
    assert list((copy / "outputs" / "figures").glob(f"*/{name}.png"))
    assert "The margin helps at a quarter." in out


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_exists(target):
    done = subprocess.run(["make", "-n", *target.split()[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["DRY=1", "ARGS=seed=7,8 trainer.max_steps=3"], "dry_run=true seed=7,8 trainer.max_steps=3"),
        (["DRY_RUN=true"], "DRY_RUN is not allowed: it must be one of FIG SCALE"),
    ],
)
def test_what_make_is_given_is_used_or_refused(words, told):
    command = ["make", "-n", "reproduce-figure", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told in (done.stderr if "DRY_RUN" in words[0] else done.stdout)
    assert (done.returncode != 0) == ("DRY_RUN" in words[0])


def test_inline_commands_name_what_exists():
    """`make X` and `lmsweep X` in the text of any page."""
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)", page.read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (page, target)
        for word in set(re.findall(r"\blmsweep ([a-z][a-z-]*)(?=[\s`]*$|`)", page.read_text(), re.MULTILINE)):
            assert word in WORDS, (page, word)
