"""`lmsweep report --serve` while a real sweep runs: what it shows, in a real browser, and what it refuses."""

import http.client
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.support.ui import WebDriverWait

from lmsweep.figures.pages.live import figure_of, live_figure
from lmsweep.figures.pages.report import PNG_END, PNG_START
from lmsweep.store.store import Store
from tests.figures.test_report_in_chromium import chromium, needs_a_browser  # noqa: F401 - a fixture
from tests.figures.test_stages import GRID
from tests.sweep.sweeping import environment, statuses, wait_until

FIGURE = "fig2_mnist_noise"


@contextmanager
def started(outputs, *words):
    command = [sys.executable, "-m", "lmsweep", *words]
    process = subprocess.Popen(command, env=environment(outputs), stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, and a sweep under way: some runs are done, one waits at a gate, others are yet to come."""
    outputs = tmp_path_factory.mktemp("live")
    gated = ("model._target_=lmsweep.models.ConvNet,tests.sweep.raising.Raising,tests.sweep.telling.Telling",)
    grid = (
        *GRID[:4],
        "trainer.max_steps=300",
        "trainer.val_every=50",
        "data.label_noise=0",
        "hydra.launcher.jobs=1",
    )
    (outputs / "gate").touch()
    with (
        started(outputs, "report", "--serve") as server,
        started(outputs, "reproduce", FIGURE, *grid, *gated),
    ):
        address = server.stdout.readline().split()[0]
        wait_until(lambda: (outputs / "told").exists() and list((outputs / "told").iterdir()))
        wait_until(lambda: any(f.read_text().startswith("250 ") for f in (outputs / "told").iterdir()))
        yield outputs, address
        (outputs / "gate").unlink()


def get(address, path="/", method="GET", **headers):
    place = urlsplit(address).netloc
    connection = http.client.HTTPConnection(place, timeout=300)
    connection.request(method, path, headers={"Host": place, **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.slow
def test_only_this_machine_is_answered_and_only_what_is_there(served):
    _, address = served
    assert address.startswith("http://127.0.0.1:")
    assert get(address)[0] == 200
    port = urlsplit(address).port
    assert get(address, Host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
        assert get(address, Host=host)[0] == 421, host
    for path in ("/runs", "/figures/../../secret.png", "/figures/fig99-smoke.png", "/figures/unnamed.png"):
        assert get(address, path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE"):
        assert get(address, method=method)[0] == 501


@pytest.mark.slow
@needs_a_browser
def test_a_browser_shows_progress_failures_curves_and_the_figure_so_far(served, chromium):  # noqa: F811
    outputs, address = served
    before = {path: path.stat().st_mtime_ns for path in outputs.rglob("results.json")}
    chromium.get(address)

    def seen(what):
        """What the page says, as soon as it says something: it replaces itself, so no element is kept."""
        wait = WebDriverWait(chromium, 600, ignored_exceptions=(WebDriverException,))
        return wait.until(lambda browser: browser.execute_script(f"return {what}"))

    text = seen("document.body.innerText")
    assert f"{FIGURE}-smoke-" in text
    assert "ArithmeticError: the network broke" in text
    curve = seen("document.querySelector('polyline').getAttribute('points')")
    assert len(curve.split()) == 4  # the run waits in its step 250, and looked every 50 steps
    assert seen("document.querySelectorAll('figure img').length") == 1
    assert seen("document.querySelector('figure img').naturalWidth > 300")
    chromium.save_screenshot(os.environ.get("LIVE_SCREENSHOT", str(outputs / "page.png")))
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    # The page asks for itself again: what it says of the time changes.
    time = "document.querySelector('p.quiet').innerText"
    at = seen(time)
    wait_until(lambda: seen(time) != at)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not (outputs / "figures").exists()


def test_names_of_sweeps_are_read_and_a_figure_is_drawn_from_nothing(tmp_path):
    assert figure_of("fig1_toy-smoke") == ("fig1_toy", "smoke")
    assert figure_of("fig2_mnist_noise-smoke-1a2b3c") == ("fig2_mnist_noise", "smoke")
    for name in ("unnamed", "mine-smoke", "fig1_toy-huge", "fig2_mnist_noise-paper-pilot", "fig1_toy"):
        assert figure_of(name) is None
    picture = live_figure(tmp_path, "fig1_toy-smoke")
    assert picture.startswith(PNG_START)
    assert picture.endswith(PNG_END)
    assert not list(tmp_path.iterdir())
    assert Store(tmp_path).folders() == []
    assert statuses(tmp_path) == {}
