"""The page in a real browser: Debian's chromium and chromium-driver, steered by selenium."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmsweep.figures.pages.report import write_report
from lmsweep.figures.words import NOTHING
from tests.figures.drawn import draw, nasty_record, record

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
needs_a_browser = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason="needs a browser: apt-get install chromium chromium-driver",
)
pytestmark = [pytest.mark.slow, needs_a_browser]
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}


def options(profile: Path):
    found = webdriver.ChromeOptions()
    found.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        found.add_argument(flag)
    found.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator:
    service = webdriver.ChromeService(str(DRIVER))
    driver = webdriver.Chrome(options=options(tmp_path_factory.mktemp("profile")), service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    outputs = tmp_path_factory.mktemp("outputs")
    for content in (record(), record(scale="laptop"), nasty_record()):
        draw(outputs, content)
    return write_report(outputs).as_uri()


@pytest.fixture
def page(chromium, address) -> Iterator:
    chromium.get(address)
    yield chromium
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def shown(page, column: int) -> list[str]:
    script = """return [...document.querySelectorAll('#all-claims tbody tr')]
        .filter((row) => row.checkVisibility()).map((row) => row.cells[arguments[0]].innerText.trim())"""
    return page.execute_script(script, column)


def choose(page, name: str, value: str) -> None:
    field = page.find_element("css selector", f"#filters [name={name}]")
    if name == "text":
        field.clear()
        field.send_keys(value)
    else:
        field.find_element("xpath", f"option[.='{value}']").click()


def test_it_loads_with_all_pictures_and_runs_no_foreign_script(page):
    assert page.title == "lmsweep: figures and claims"  # what the nasty texts try to change
    widths = page.execute_script("return [...document.images].map((image) => image.naturalWidth)")
    assert widths == [680, 680, 680]


def test_it_asks_the_network_for_nothing(page):
    script = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    assert [name for name in page.execute_script(script) if not name.startswith("data:")] == []


def test_headings_sort(page):
    def click(column: int) -> str:
        heading = page.find_elements("css selector", "#all-claims thead th")[column]
        heading.find_element("tag name", "button").click()
        return heading.get_attribute("aria-sort")

    before = shown(page, 4)
    assert click(4) == "ascending"
    assert shown(page, 4) == ["0", "0", "2", "2", "2", "2", "3", "10", "10"] != before
    assert click(4) == "descending"
    assert shown(page, 4) == ["10", "10", "3", "2", "2", "2", "2", "0", "0"]
    for direction in ("ascending", "descending"):  # what has nothing to compare comes last
        assert click(2) == direction
        assert shown(page, 2)[-4:] == [NOTHING] * 4
        assert NOTHING not in shown(page, 2)[:-4]
    click(0)
    assert shown(page, 0)[-1] == "fig10_mnist_gaussian"
    assert len(page.find_elements("css selector", "#all-claims th[aria-sort]")) == 1


def test_fields_filter(page):
    assert len(shown(page, 0)) == 9
    choose(page, "verdict", "holds")
    assert [word.split()[-1] for word in shown(page, 6)] == ["holds"] * 3
    choose(page, "figure", "fig2_mnist_noise")
    choose(page, "scale", "laptop")
    assert (shown(page, 0), shown(page, 5)) == (["fig2_mnist_noise"], ["laptop"])
    assert page.find_element("id", "shown").text == "1 of 9 shown"
    page.find_element("css selector", "#filters [type=reset]").click()
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert len(shown(page, 0)) == 9
    choose(page, "text", "CROSS-entropy beat")
    assert shown(page, 1) == ["All margins beat cross-entropy. Sec. 4.2"] * 2
    choose(page, "text", "no such words")
    assert shown(page, 0) == []


@pytest.mark.parametrize("opened", [False, True])
def test_a_phone_scrolls_no_page_sideways(page, opened):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.execute_script(
        f"document.querySelectorAll('details').forEach((d) => d.open = {str(opened).lower()})"
    )
    script = "return [innerWidth, document.documentElement.scrollWidth, visualViewport.width]"
    assert page.execute_script(script) == [360, 360, 360]
    # What leaves the screen must be within a box that scrolls by itself.
    lost = """return [...document.querySelectorAll('main *, header *')].filter((one) =>
        one.checkVisibility() && one.getBoundingClientRect().right > 361 && !one.closest('.scroll'))
        .map((one) => one.outerHTML.slice(0, 80))"""
    assert page.execute_script(lost) == []


def test_a_filtered_phone_shows_fewer_cards(page):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    choose(page, "verdict", "fails")
    assert len(shown(page, 0)) == 2


def test_paper_shows_everything_and_no_controls(page):
    choose(page, "verdict", "fails")
    printed = page.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert base64.b64decode(printed).startswith(b"%PDF")
    assert page.find_elements("css selector", "details:not([open])")  # as they were before printing
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert len(shown(page, 0)) == 9
        assert not page.find_element("id", "filters").is_displayed()
        hidden = """return [...document.querySelectorAll('details > :not(summary)')]
            .filter((one) => !one.checkVisibility()).length"""
        assert page.execute_script(hidden) == 0  # by style alone
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_before_printing_all_parts_are_opened_and_then_closed_again(page):
    count = "return document.querySelectorAll('details:not([open])').length"
    closed = page.execute_script(count)
    opened = page.execute_script("dispatchEvent(new Event('beforeprint'));" + count)
    again = page.execute_script("dispatchEvent(new Event('afterprint'));" + count)
    assert (opened, again) == (0, closed)
    assert closed > 0


def test_without_scripts_it_is_a_plain_table(chromium, address):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chromium.get(address)
        assert not chromium.find_element("id", "filters").is_displayed()
        assert chromium.find_elements("css selector", "thead button") == []
        assert len(chromium.find_elements("css selector", "#all-claims tbody tr")) == 9
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(page, scheme):
    """The contrast that WCAG 2 asks for at level AA, 4.5, in both colour schemes."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    script = """
    const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => parse(colour).slice(0, 3).map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (one) => {
        const colour = getComputedStyle(one).backgroundColor;
        return parse(colour)[3] === 0 && one.parentElement ? ground(one.parentElement) : colour;
    };
    return [...document.querySelectorAll('.verdict, .quiet, a, th, td, p, caption, dt, dd, label, button')]
        .map((one) => [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => b - a))
        .reduce((least, [a, b]) => Math.min(least, (a + 0.05) / (b + 0.05)), 21);"""
    try:
        assert page.execute_script(script) >= 4.5
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
