"""The page's content, read as a browser's parser reads it."""

import json
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from lmsweep.errors import UserError
from lmsweep.figures.pages.report import write_report
from lmsweep.figures.record import read_record
from tests import warm
from tests.figures.drawn import ATTRIBUTE, NASTY, UNICODE, claim, draw, nasty_record, record

VOID = {"meta", "link", "img", "input", "wbr", "br"}


class Page(HTMLParser):
    """Every element with its attributes, all visible text, and whether tags are properly nested."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("td", "th", "dt", "dd", "li", "p"):
            self.texts.append(" ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def outputs(tmp_path) -> Path:
    draw(tmp_path, nasty_record())
    draw(tmp_path, record())
    draw(tmp_path, record(scale="laptop", title="MNIST, noisy labels"))
    return tmp_path


@pytest.fixture
def page(outputs) -> Page:
    return Page(write_report(outputs))


def test_the_page_is_where_it_is_promised_and_the_same_records_give_the_same_bytes(outputs):
    path = write_report(outputs)
    first = path.read_bytes()
    assert path == outputs / "report" / "index.html"
    assert write_report(outputs).read_bytes() == first
    assert [file.name for file in path.parent.iterdir()] == ["index.html"]


def test_figures_come_in_the_papers_order_with_small_scales_first(page):
    anchors = [h["id"] for tag, h in page.elements if tag in ("h2", "h3") and "fig" in (h.get("id") or "")]
    assert anchors == [
        "fig2_mnist_noise",
        "fig2_mnist_noise--smoke",
        "fig2_mnist_noise--laptop",
        "fig10_mnist_gaussian",
        "fig10_mnist_gaussian--smoke",
    ]


def test_summary_counts_and_rows(page):
    assert (
        "5 claims of the paper checked on 2 figures (scales: smoke, laptop), from 60 training runs."
        in page.text
    )
    assert "A claim has a verdict of its own at each scale, 9 in all." in page.text
    assert "3 cells of the grids have no number" in page.text
    rows = [row for row in page.all("tr") if "data-verdict" in row]
    assert [row["data-verdict"] for row in rows].count("holds") == 3
    assert len(rows) == 9
    for verdict in ("✓ holds 3", "✗ fails 2", "≈ not resolved 2", "○ not run 2"):
        assert verdict in page.text


def test_every_text_is_escaped(page):
    assert len(page.all("script")) == 1
    assert page.all("b") == []
    assert not any("onmouseover" in attributes for _, attributes in page.elements)
    # title, claim twice (summary and section), missing, provenance, audit, reference, contents
    assert page.text.count(NASTY) >= 7
    for text in (ATTRIBUTE.strip(), UNICODE, "</table>", "<b>bold</b>"):
        assert text in page.text


def test_links_stay_below_outputs_and_lead_to_run_folders(page, outputs):
    links = {link["href"] for link in page.all("a")}
    run = record()["runs"][0]
    assert f"../runs/{run}/" in links
    assert "../evaluations/e0e1e2e3/" in links
    assert "../runs/..%2Fx%3Fy%23z/" in links
    assert "../figures/laptop/fig2_mnist_noise.pdf" in links
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in links:
        assert link[1:] in ids if link.startswith("#") else link.startswith("../")
    for link in (link for link in links if link.startswith("../figures/")):
        assert (outputs / "report" / link).resolve().is_file()


def test_nothing_is_loaded_from_anywhere(page):
    for tag, attributes in page.elements:
        assert tag not in ("iframe", "object", "embed", "base")
        for key in ("src", "srcset", "data", "action"):
            assert (attributes.get(key) or "data:").startswith("data:")
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'; img-src data:; script-src 'sha256-")
    assert not any("style" in attributes for _, attributes in page.elements)  # the policy would drop it


def test_a_section_shows_where_its_numbers_come_from(page):
    for words in (
        "72eb7ed72eb7ed72eb7ed72eb7ed72eb7ed72eb7, with uncommitted changes",
        "none: not drawn in a git checkout",
        "make reproduce-figure FIG=fig2_mnist_noise SCALE=laptop",
        "Best mean validation accuracy over seeds.",
        "optimizer.lr=0.01, trainer.max_steps=600, margin.weight=0.5.",
        "margin.gamma=10",
        "0.6, 0.8 failed:",
        "gradients masked",
        "longest 9.5",
        "(0.0026, 0.9)",
        "No cell of the grid is missing.",
    ):
        assert words in page.text, words
    assert "0.9623" in page.text
    assert "margin.gamma=2 margin.weight" not in page.text


def test_pictures_are_inside_with_alt_text(page):
    pictures = page.all("img")
    assert len(pictures) == 3
    for picture in pictures:
        assert picture["src"].startswith("data:image/png;base64,iVBOR")
        assert "at smoke scale" in picture["alt"] or "at laptop scale" in picture["alt"]
        assert "6 methods (Cross-entropy / Hinge / Margin l1, all layers / " in picture["alt"]


def test_tables_have_captions_and_headings(page):
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(heading["scope"] in ("col", "row") for heading in page.all("th"))
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("picture", [b"", b"\x89PNG\r\n\x1a\n cut"])
def test_a_picture_that_is_not_whole_is_said_to_be_missing(tmp_path, picture):
    draw(tmp_path, record(), picture)
    page = Page(write_report(tmp_path))
    assert page.all("img") == []
    assert "draw it again with make reproduce-figure FIG=fig2_mnist_noise SCALE=smoke" in page.text


def test_long_tables_are_cut_and_say_so(tmp_path):
    draw(tmp_path, record(selected=record()["selected"] * 10))
    assert "The first 200 of 300 rows; the CSV file has all." in Page(write_report(tmp_path)).text


def test_a_record_with_little_in_it_is_enough(tmp_path):
    half = "\ud800"  # of a surrogate pair: JSON can say it, UTF-8 cannot
    bare = claim("a", "not run", says=f"It {half} is said.", n=0, where="", ours="", paper="")
    path = draw(tmp_path, record(selected=[], claims=[bare], runs=[], seeds=[]))
    path.with_suffix(".csv").unlink()
    assert "It ? is said." in Page(write_report(tmp_path)).text


def test_a_choice_for_all_strengths_of_an_attack_is_told_once(tmp_path):
    cell = record()["selected"][0]
    draw(tmp_path, record(selected=[cell | {"x": x} for x in (0.1, 0.2, 0.3)] + [cell | {"runs": ["other"]}]))
    text = Page(write_report(tmp_path)).text
    assert "noise xent 0.1, 0.2, 0.3 95.00%" in text
    assert "noise xent 0 95.00%" in text


def test_no_figures(tmp_path):
    with pytest.raises(UserError, match=r"no figures in .*figures to report; .*`make reproduce-figure`"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"figure": ', "Expecting value"),
        (b"\xff\xfe\xff", "decode"),
        (b"[]", "no mapping"),
        (b'{"figure": "x"}', "scale: Field required"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_a_damaged_record_is_named_and_the_others_are_reported(outputs, content, reason, capsys):
    path = outputs / "figures" / "smoke" / "fig3_mnist_ifgsm.json"
    path.write_bytes(content)
    page = write_report(outputs).read_text()
    told = capsys.readouterr().err
    assert f"{path} is damaged" in told
    assert reason in told
    assert "make reproduce-figure FIG=fig3_mnist_ifgsm SCALE=smoke" in told
    assert "fig3_mnist_ifgsm" not in page
    with pytest.raises(UserError, match=reason):
        read_record(path)


@pytest.mark.parametrize("change", [{"claims": [claim("a", "perhaps")]}, {"figure": "fig1_toy"}])
def test_a_record_that_contradicts_itself_is_damaged(tmp_path, change):
    path = draw(tmp_path, record())
    path.write_text(json.dumps(record(**change)))
    with pytest.raises(UserError, match="is damaged") as error:
        write_report(tmp_path)
    assert str(path) in str(error.value)


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.call("lmsweep", "report", *arguments, **environment)


def test_the_command_prints_the_path(outputs, tmp_path):
    expected = str(outputs / "report" / "index.html")
    assert call("--outputs", str(outputs)).stdout.strip() == expected
    assert call(LMSWEEP_OUTPUTS=str(outputs)).stdout.strip() == expected
    empty = call("--outputs", str(tmp_path / "none"))
    assert (empty.returncode, empty.stdout, empty.stderr.count("\n")) == (1, "", 1)


def test_the_wheel_holds_template_style_and_script(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("page.html", "page.css", "page.js"):
        assert f"lmsweep/figures/pages/templates/{name}" in names
