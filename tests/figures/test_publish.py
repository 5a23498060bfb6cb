"""Figures that are kept in results/, and the page about them."""

import pytest

from lmsweep.commands.figures import EXPECTED, publish
from lmsweep.commands.figures import draw as draw_figure
from lmsweep.config.sweeps import read_sweep
from lmsweep.errors import UserError
from lmsweep.figures.record import read_csv
from lmsweep.store.housekeeping import unpack
from lmsweep.store.store import Store
from lmsweep.store.sweeps import PILOT, record_sweep
from tests.figures.drawn import claim, draw, nasty_record, record


def cells(page, first):
    """The rows of the page whose first cell is `first`."""
    lines = [line.replace("\\|", "/") for line in page.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in rows if row[0] == first]


def test_the_files_are_copied_and_the_page_tells_every_claim(tmp_path):
    claims = [claim("a", "holds", says="better | by far\nthan b"), claim("b", "fails")]
    name = record()["figure"]
    draw(tmp_path, record(scale="laptop", claims=claims))
    draw(tmp_path, record(scale="smoke"))
    page = publish(tmp_path, tmp_path / "results", "laptop")
    kept = sorted(path.name for path in page.parent.iterdir())
    assert kept == ["README.md", f"{name}.csv", f"{name}.json", f"{name}.png"]
    drawn = tmp_path / "figures" / "laptop" / f"{name}.png"
    assert (page.parent / drawn.name).read_bytes() == drawn.read_bytes()
    (summary,) = cells(page, f"[{name}](#{name.lower()})")
    assert summary[1:5] == ["1", "1", "0", "0"]
    (row,) = cells(page, "holds")
    assert row[1] == "better / by far than b"
    assert f"({name}.png)" in page.read_text()


def test_the_readme_beside_the_results_gets_the_overview_at_its_place(tmp_path):
    readme = tmp_path / "README.md"
    begin, end = "<!-- figures: written by make publish -->", "<!-- end of figures -->"
    marked = f"# Ours\n{begin}\nold\n{end}\nlast\n"
    readme.write_text(marked)
    name = record()["figure"]
    draw(
        tmp_path,
        record(scale="laptop", claims=[claim("a", "holds"), claim("b", "holds"), claim("c", "fails")]),
    )
    draw(tmp_path, record(scale="smoke"))
    publish(tmp_path, tmp_path / "results", "smoke")
    assert f"(results/smoke/{name}.png)" in readme.read_text()
    publish(tmp_path, tmp_path / "results", "laptop")
    text = readme.read_text()
    assert text.startswith(f"# Ours\n{begin}\nOf 3 claims: 2 holds, 1 fails.\n")
    assert text.endswith(f"|\n{end}\nlast\n")
    (row,) = (line for line in text.splitlines() if name in line)
    assert f"(results/laptop/{name}.png)" in row
    assert f"[2 holds, 1 fails](results/laptop/README.md#{name.lower()})" in row


def test_a_page_has_every_figure_that_was_kept_before(tmp_path):
    first, second = record(scale="laptop"), {**nasty_record(), "scale": "laptop"}
    draw(tmp_path, first)
    publish(tmp_path, tmp_path / "results", "laptop")
    draw(tmp_path, second)
    page = publish(tmp_path, tmp_path / "results", "laptop", [second["figure"]])
    assert all(f"## {one['figure']}" in page.read_text() for one in (first, second))


def test_what_is_not_drawn_is_named(tmp_path):
    with pytest.raises(UserError, match="Nothing: not drawn"):
        publish(tmp_path, tmp_path / "results", "laptop")
    with pytest.raises(UserError, match="fig99: not drawn"):
        publish(tmp_path, tmp_path / "results", "laptop", ["fig99"])
    assert not (tmp_path / "results").exists()


def test_results_of_the_runs_are_kept_without_weights(tmp_path):
    name = record()["figure"]
    draw(tmp_path, record(scale="laptop"))
    runs = {"0123456789ab": "laptop", "123456789abc": f"laptop{PILOT}", "23456789abcd": "smoke"}
    for run, scale in runs.items():
        folder = Store(tmp_path).lease(run, {"seed": 1}, {"method": "xent"})
        (folder.path / "checkpoint.ckpt").write_bytes(b"weights")
        folder.finish({"seconds": 1.0, "metrics": {"test_accuracy": 0.5}})
        record_sweep(tmp_path, [run], name, scale)
    publish(tmp_path, tmp_path / "results", "laptop")
    unpack(tmp_path / "results" / "laptop" / f"{name}.zip", tmp_path / "there")
    assert {path.parent.name for path in (tmp_path / "there" / "runs").glob("*/results.json")} == {*runs} - {
        "23456789abcd"
    }
    assert not list((tmp_path / "there").rglob("*.ckpt"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "archive", sorted(EXPECTED.glob("*/*.zip")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_committed_figure_is_drawn_again_from_its_results(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("LMSWEEP_OUTPUTS", str(tmp_path))
    unpack(archive, tmp_path)
    draw_figure(read_sweep(archive.stem, archive.parent.name))
    drawn = read_csv(tmp_path / "figures" / archive.parent.name / f"{archive.stem}.csv")
    kept = read_csv(archive.with_suffix(".csv"))
    # Means go through other orders of additions on other machines, so their last digit may differ.
    numbers = ["mean", "low", "high"]
    assert drawn.drop(columns=numbers).equals(kept.drop(columns=numbers))
    assert drawn[numbers].to_numpy() == pytest.approx(kept[numbers].to_numpy(), abs=1e-6, nan_ok=True)
