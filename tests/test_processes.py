"""Worker processes: what comes back, how they die, and that none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver

import psutil
import pytest

from lmsweep.processes import Pool, call_each, value_of


def wait_for(condition, seconds=600.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def endings(pool, count):
    found = []
    while len(found) < count:
        found += pool.wait(10.0)
    return {ended.key: ended for ended in found}


@pytest.fixture(scope="module")
def _server_of_our_own():
    forkserver._forkserver._stop()  # a server that another test started may have other modules


@pytest.fixture
def pool(_server_of_our_own):
    pool = Pool([{"PLACE": "a"}, {"PLACE": "b"}], preload=("lmsweep.training.preload",))
    yield pool
    pool.stop(grace=1.0)


def test_values_and_errors_come_back_and_every_task_has_a_fresh_process(pool):
    def where():
        first = "torch" in sys.modules, os.environ["PLACE"], getattr(sys, "seen_before", False)
        sys.seen_before = True
        return os.getpid(), *first

    def raises():
        raise ArithmeticError("no")

    pool.start("one", where)
    pool.start("two", raises)
    assert not pool.free
    first = endings(pool, 2)
    assert isinstance(first["two"].error, ArithmeticError)
    pool.start("three", where)
    pool.start("four", where)
    second = endings(pool, 2)
    one, three, four = first["one"].value, second["three"].value, second["four"].value
    assert len({one[0], three[0], four[0], os.getpid()}) == 4
    assert [row[1] for row in (one, three, four)] == [True] * 3
    assert [one[2], three[2], four[2]] == ["a", "a", "b"]
    assert not any(row[3] for row in (one, three, four))


def test_a_value_larger_than_a_pipe_comes_back(pool):
    pool.start("big", lambda: b"x" * 3_000_000)
    assert len(endings(pool, 1)["big"].value) == 3_000_000


def test_what_cannot_be_sent_is_an_error(pool):
    pool.start("lock", lambda: __import__("threading").Lock())
    assert "cannot be sent" in str(endings(pool, 1)["lock"].error)


def test_a_killed_process_is_told_apart(pool):
    pool.start("one", lambda: time.sleep(100))
    os.kill(pool.workers["one"].process.pid, signal.SIGKILL)
    assert endings(pool, 1)["one"].died == "signal 9 (SIGKILL)"
    pool.start("two", lambda: os._exit(3))
    assert endings(pool, 1)["two"].died == "exit status 3"


def test_stop_interrupts_so_that_work_can_be_given_back_and_ctrl_c_does_not(pool, tmp_path):
    def work():
        try:
            (tmp_path / "started").touch()
            time.sleep(100)
        except KeyboardInterrupt:
            (tmp_path / "given back").touch()
            raise

    pool.start("one", work)
    wait_for((tmp_path / "started").exists)
    os.kill(pool.workers["one"].process.pid, signal.SIGINT)
    assert pool.wait(0.3) == []
    assert pool.stop() == ["one"]
    assert (tmp_path / "given back").exists()


def test_a_process_that_does_not_listen_is_killed(pool, tmp_path):
    def deaf():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "started").touch()
        time.sleep(100)

    pool.start("one", deaf)
    wait_for((tmp_path / "started").exists)
    process = pool.workers["one"].process
    pool.stop(grace=0.2)
    assert process.exitcode == -signal.SIGKILL


def test_what_a_task_prints_goes_to_the_end_of_its_log(pool, tmp_path):
    log = tmp_path / "new" / "log.txt"
    for text in ("first", "second"):
        pool.start(text, lambda text=text: print(text), log)
        endings(pool, 1)
    assert log.read_text() == "first\nsecond\n"


def test_another_server_is_started_when_the_first_is_killed(pool):
    pool.start("one", os.getppid)
    server = endings(pool, 1)["one"].value
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(server) or psutil.Process(server).status() == "zombie")
    pool.start("two", os.getppid)
    assert endings(pool, 1)["two"].value not in (server, None)


def test_every_task_is_called_failures_stop_no_other_and_the_killed_get_another_chance(tmp_path):
    def killed_once():
        if not (tmp_path / "before").exists():
            (tmp_path / "before").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "second time"

    def broken():
        raise ArithmeticError("no")

    tasks = {"good": lambda: 1, "killed": killed_once, "broken": broken, "doomed": lambda: os._exit(5)}
    ends = call_each([{}, {}], tasks)
    assert list(ends) == list(tasks)
    assert [value_of(ends[key]) for key in ("good", "killed")] == [1, "second time"]
    assert ends["doomed"].died == "exit status 5"
    with pytest.raises(ArithmeticError, match="no"):
        value_of(ends["broken"])
    with pytest.raises(RuntimeError, match="the process of doomed died 3 times by exit status 5"):
        value_of(ends["doomed"])


ORPHANS = """
import os, time
from lmsweep.processes import Pool

if __name__ == "__main__":
    pool = Pool([{}])
    pool.start("one", lambda: (print(os.getpid(), flush=True), time.sleep(100)))
    pool.wait(100)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ORPHANS)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    worker = psutil.Process(int(parent.stdout.readline()))
    server = worker.parent()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not any(p.is_running() and p.status() != "zombie" for p in (worker, server)))
