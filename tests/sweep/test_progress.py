"""What is shown of a sweep, on a terminal and elsewhere."""

import io
import itertools

import pytest
from rich.console import Console

from lmsweep.sweep.progress import Progress, duration, label, probing

ABOUT = {
    name: {"method": "xent", "data": "digits", "label_noise": 0.0, "fraction": 1.0, "seed": seed}
    for seed, name in enumerate("abcd")
}
SUMMARY = "validation 50.00%  test 25.00%"


def filled(console):
    progress = Progress(ABOUT, 2, console=console)
    progress.cached("a")
    progress.started("b")
    progress.began["b"] -= 10
    progress.done("b", SUMMARY)
    progress.started("c")
    progress.failed("c", "it broke")
    progress.started("d")
    return progress


def test_elsewhere_there_is_one_line_per_run():
    text = io.StringIO()
    progress = filled(Console(file=text))
    lines = text.getvalue().splitlines()
    assert lines == [
        "[2/4] b  xent digits seed=1  validation 50.00%  test 25.00%  10.0 s",
        "[3/4] c  xent digits seed=2  failed: it broke",
    ]
    assert progress.summary().startswith("1 done  1 cached  1 failed  1 running  1 left  about 5 s to go")


def test_on_a_terminal_there_is_a_picture_of_it_all():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress = filled(console)
    with console.capture() as captured:
        console.print(progress)
    picture = captured.get()
    for part in ("3/4", "1 done", "1 failed", "d", "xent digits seed=3", "failed: it broke", "50.00%"):
        assert part in picture
    with progress:
        assert progress.live.is_started
    assert not progress.live.is_started


def test_a_long_silence_in_a_log_file_is_broken_less_and_less_often(monkeypatch, tmp_path):
    seconds = itertools.count()
    monkeypatch.setattr("lmsweep.sweep.progress.time.monotonic", lambda: next(seconds) / 10)
    text = io.StringIO()
    progress = Progress(ABOUT, 1, console=Console(file=text))
    log = tmp_path / "log.txt"
    progress.started("b", log=log)
    log.write_text("xent on digits: step 5/40\nxent on digits: step 10/40\n")
    for _ in range(2000):
        progress.tick()
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("[0/4] running:  b  xent digits seed=1  xent on digits: step 10/40  ")
    assert 3 <= len(lines) <= 7


@pytest.mark.parametrize("terminal", [False, True])
def test_probes_are_announced(terminal):
    text = io.StringIO()
    with probing(2, Console(file=text, force_terminal=terminal, width=100)) as ended:
        ended()
        ended()
    assert "Timing a few steps of 2 kinds of runs" in text.getvalue()
    assert ("2/2" in text.getvalue()) == terminal


def test_how_long_is_said_as_people_say_it():
    assert [duration(s) for s in (5, 90, 3600, 9000)] == ["5 s", "2 min", "60 min", "2 h 30 min"]


def test_a_run_is_named_by_what_is_not_plain():
    about = {"method": "margin_l2_all", "data": "mnist", "label_noise": 0.2, "fraction": 0.01, "gamma": 4.0}
    assert label({**about, "seed": 1}) == "margin_l2_all mnist label_noise=0.2 fraction=0.01 gamma=4 seed=1"
