"""Every figure by one command, at a size that tests can afford: trained, attacked, drawn, reported."""

import json
import shutil
from pathlib import Path

import pytest

from lmsweep.config.sweeps import sweep_names
from lmsweep.figures.record import read_csv, write_csv
from tests import warm

ONE = "fig10_mnist_gaussian"  # few runs, and evaluations of them
METHODS = "figX_methods"  # as many runs as half of the other figures; made with two of its methods only
MOST = [name for name in sweep_names() if name != METHODS]
# Most of the runs of these are levels of noise, of which two say as much about the making as five.
NOISE = ["fig2_mnist_noise", "fig4_cifar_noise", "fig7_mnist_noise_all", "figX_selection"]
# Two seeds, two values per axis, two steps, few samples: nothing is learnt, everything is done.
TINY = (
    "seed=0,1",
    "trainer.max_steps=2",
    "trainer.val_every=2",
    "trainer.batch_size=8",
    "++grid.fractions='1,0.5'",
    "++grid.evaluation=['samples=10','attack.alpha=0.1','attack.queries=2','attack.apgd_steps=2','attack.minimal_steps=2']",
    "++grid.audit=['samples=10','attack.queries=2','attack.apgd_steps=2','attack.minimal_steps=2','attack.targets=1','alpha=0.1']",
)


def call(outputs, word, *arguments):
    return warm.call("lmsweep", word, *arguments, LMSWEEP_OUTPUTS=str(outputs))


def made(*figures):
    """A function that makes these figures in a folder."""

    def make(outputs):
        done = call(outputs, "reproduce", *figures, *TINY)
        assert done.returncode == 0, done.stderr
        return outputs, done

    return make


@pytest.fixture(scope="module")
def everything(made_once):
    """A store with all figures, and what was said about those of noise and about the others."""

    def make(outputs):
        _, noise = made(*NOISE, "data.label_noise=0,0.8")(outputs)
        _, others = made(*(name for name in MOST if name not in NOISE))(outputs)
        return outputs, noise, others

    return made_once("everything", make)


@pytest.fixture(scope="module")
def one_figure(tmp_path_factory):
    return made(ONE)(tmp_path_factory.mktemp("one"))


def assert_made(outputs, done, names):
    for name in names:
        (picture,) = (outputs / "figures").glob(f"*/{name}.png")
        made = picture.parent
        assert made.name.startswith("smoke-")  # with overrides it is not the real smoke scale
        assert sorted(path.suffix for path in made.glob(f"{name}.*")) == [".csv", ".json", ".pdf", ".png"]
        record = json.loads((made / f"{name}.json").read_text())
        assert "trainer.max_steps=2" in record["command"]
        assert record["missing"] == [], name
        table = read_csv(made / f"{name}.csv")
        assert list(table.columns[:7]) == ["method", "x", "mean", "low", "high", "n", "selected"]
        assert set(table["n"]) == {2}
        # Every number traces to runs that exist.
        ids = {run for cell in table["selected"] for run in cell.split()}
        assert ids <= set(record["runs"])
        assert all((outputs / "runs" / run / "results.json").exists() for run in ids)
        assert str(made / f"{name}.png") in done.stdout
        values = {claim["verdict"] for claim in record["claims"] if claim["kind"] == "value"}
        assert values <= {"not run"} or name == "fig1_toy"  # digits are not the paper's data


def test_a_figure_is_made(one_figure):
    assert_made(*one_figure, [ONE])


@pytest.mark.slow
def test_all_figures_are_made_and_share_runs(everything):
    outputs, noise, others = everything
    assert_made(outputs, noise, NOISE)
    assert_made(outputs, others, [name for name in MOST if name not in NOISE])
    saved = next(line for line in noise.stdout.splitlines() if "sharing saves" in line)
    _, asked, spared = (int(word) for word in saved.split() if word.isdigit())
    assert spared > asked / 4


@pytest.mark.slow
def test_the_figure_of_all_methods_is_made_with_a_table(tmp_path):
    _, done = made(METHODS, "method=xent,gce")(tmp_path)
    assert "To train: 32 of 32 runs" in done.stdout
    (made_of,) = (tmp_path / "figures").iterdir()
    table = read_csv(made_of / f"{METHODS}.csv")
    assert set(table[table["n"] == 2]["method"]) == {"xent", "gce"}
    lines = (made_of / f"{METHODS}.md").read_text().splitlines()
    assert sum(line.startswith(("| Cross-entropy |", "| GCE |")) and "%" in line for line in lines) == 2


@pytest.mark.slow
def test_attack_figures_have_audits(everything):
    outputs, *_ = everything
    (path,) = (outputs / "figures").glob("*/fig3_mnist_ifgsm.json")
    record = json.loads(path.read_text())
    assert [row["method"] for row in record["audit"]][:2] == ["xent", "hinge"]
    assert len(record["audit"]) == 8
    assert {row["verdict"] for row in record["audit"]} <= {
        "consistent",
        "gradients masked",
        "attack too weak to say",
    }


@pytest.mark.parametrize(
    ("fixture", "name", "runs"),
    [("one_figure", ONE, 8), pytest.param("everything", "fig3_mnist_ifgsm", 16, marks=pytest.mark.slow)],
)
def test_everything_cached_is_not_done_again_and_gives_the_same_bytes(request, fixture, name, runs):
    outputs, *_ = request.getfixturevalue(fixture)
    files = sorted((outputs / "figures").glob(f"*/{name}.*"))
    before = [path.read_bytes() for path in files]
    again = call(outputs, "reproduce", name, *TINY)
    assert again.returncode == 0, again.stderr
    assert f"To train: 0 of {runs} runs" in again.stdout
    assert "evaluations in" not in again.stdout
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("name", [ONE, "fig1_toy", "fig12_cifar_distance"])
def test_drawing_alone_trains_nothing_and_says_what_is_missing(name, tmp_path):
    empty = call(tmp_path, "figure", name)
    assert empty.returncode == 0, empty.stderr
    assert "not trained" in empty.stdout
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "figures" / "smoke" / f"{name}.png").stat().st_size > 1000


def test_a_rehearsal_trains_nothing(tmp_path):
    done = call(tmp_path, "reproduce", ONE, "--scale", "smoke", *TINY, "dry_run=true")
    assert done.returncode == 0, done.stderr
    assert "To train: 8 of 8 runs" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_weights_that_were_deleted_are_trained_again(one_figure):
    outputs, _ = one_figure
    (path,) = (outputs / "figures").glob(f"*/{ONE}.json")
    record = json.loads(path.read_text())
    run = outputs / "runs" / record["runs"][0]
    before = json.loads((run / "results.json").read_text())["metrics"]
    (run / "checkpoint.ckpt").unlink()
    for name in record["evaluations"]:
        shutil.rmtree(outputs / "evaluations" / name)
    again = call(outputs, "reproduce", ONE, *TINY)
    assert again.returncode == 0, again.stderr
    assert "The weights of 1 runs were deleted" in again.stdout
    assert json.loads((run / "results.json").read_text())["metrics"] == before
    # A policy of the sweep deletes them; the figure keeps its name and its bytes.
    picture = path.with_suffix(".csv").read_bytes()
    dropped = call(outputs, "reproduce", ONE, *TINY, "+grid.keep=none")
    # Of each run the best weights and the last.
    assert f"grid.keep=none: {2 * len(record['runs'])} checkpoints deleted" in dropped.stdout, dropped.stderr
    assert path.with_suffix(".csv").read_bytes() == picture
    assert not list((outputs / "runs").glob("*/*.ckpt"))


@pytest.mark.slow
def test_the_report_has_every_figure(everything):
    outputs, *_ = everything
    page = call(outputs, "report")
    assert page.returncode == 0, page.stderr
    html = (outputs / "report" / "index.html").read_text()
    assert all(name in html for name in MOST)


def test_what_was_made_can_be_verified(one_figure, tmp_path):
    outputs, _ = one_figure
    csv = f"{ONE}.csv"
    (drawn,) = (outputs / "figures").iterdir()
    expected = tmp_path / drawn.name / csv
    expected.parent.mkdir()
    expected.write_bytes((drawn / csv).read_bytes())
    verify = ("verify", ONE, "--expected", str(tmp_path), "--scale", drawn.name)
    same = call(outputs, *verify)
    assert same.returncode == 0, same.stderr
    table = read_csv(expected)
    assert f"{len(table)} cells within 0.02" in same.stdout
    write_csv(table.assign(mean=table["mean"] + 0.9 * (table["method"] == "xent")), expected)
    other = call(outputs, *verify)
    assert other.returncode == 1
    assert "method xent, x 0" in other.stderr


def test_a_figure_that_is_not_drawn_is_verified_by_training_one_cell_again(tmp_path):
    committed = Path(__file__).parents[2] / "results" / "smoke" / f"{ONE}.csv"
    verify = ("verify", ONE, "--expected", str(tmp_path))
    expected = tmp_path / "smoke" / committed.name
    assert f"{expected} is missing" in call(tmp_path, *verify).stderr
    expected.parent.mkdir()
    table = read_csv(committed)
    one = (table["method"] == "xent") & (table["x"] == 0.1)
    # Another kind of CPU gives other numbers, which differ as seeds do, and not by so much.
    write_csv(table.assign(mean=table["mean"] - 0.5 * one), expected)
    done = call(tmp_path, *verify)
    assert done.returncode == 1
    assert "3 runs of xent are trained again" in done.stdout
    # All its other points agree, and nothing is said of methods that were not trained.
    (wrong,) = (line for line in done.stderr.splitlines() if line.startswith("panel"))
    assert "method xent, x 0.1: mean is" in wrong
    assert not (tmp_path / "runs").exists()


def test_a_figure_or_scale_that_does_not_exist_is_named(tmp_path):
    for arguments, part in (
        (("fig99",), "figure=fig99 is not allowed: it must be one of fig1_toy"),
        (("fig1_toy", "--scale", "huge"), "scale=huge is not allowed"),
        (("fig1_toy", "margin.gama=1"), "There is no key margin.gama"),
    ):
        done = call(tmp_path, "reproduce", *arguments)
        assert done.returncode == 2, done.stderr
        assert part in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
