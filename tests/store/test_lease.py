"""Who has a job: with real processes that are stopped, in other pid namespaces, or have another clock."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from lmsweep.store.lease import STALE_AFTER_SECONDS, JobBusyError
from lmsweep.store.store import Store
from tests import warm
from tests.sweep.sweeping import TINY, environment, metrics, wait_until

# Takes a lease, says so, and when it is told to, finishes.
OWNER = """
import sys
from lmsweep.store.lease import JobBusyError, LeaseLostError
from lmsweep.store.store import Store
try:
    folder = Store(sys.argv[1]).lease("abc", {})
    print("leased", flush=True)
    sys.stdin.readline()
    folder.finish({"by": "the other process"})
    print("finished")
except (JobBusyError, LeaseLostError) as error:
    print(type(error).__name__)
"""
APART = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def owner(root, *prefix):
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", OWNER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """What the owner says at its end."""
    return process.communicate("\n", timeout=600)[0].strip()


def fall_silent(folder):
    old = time.time() - STALE_AFTER_SECONDS - 1
    os.utime(folder.status, (old, old))


@pytest.fixture
def apart():
    tried = subprocess.run([*APART, "true"], capture_output=True) if shutil.which("unshare") else None
    if tried is None or tried.returncode:
        pytest.skip("this machine does not let us make a pid namespace")
    return APART


def test_a_process_of_another_pid_namespace_keeps_its_lease(tmp_path, apart):
    """Two containers with one host name: the pid of one means nothing to the other."""
    process = owner(tmp_path, *apart)
    assert process.stdout.readline() == "leased\n"
    status = Store(tmp_path).folder("abc").read_status()
    assert status["host"] == os.uname().nodename
    with pytest.raises(JobBusyError):
        Store(tmp_path).lease("abc", {})
    assert finish(process) == "finished"


def test_a_lease_is_kept_against_a_process_of_another_pid_namespace(tmp_path, apart):
    folder = Store(tmp_path).lease("abc", {})
    assert finish(owner(tmp_path, *apart)) == "JobBusyError"
    fall_silent(folder)
    assert finish(owner(tmp_path, *apart)) == "leased\nfinished"


def test_a_process_that_is_stopped_for_longer_than_its_lease_loses_it_and_notices(tmp_path):
    process = owner(tmp_path)
    assert process.stdout.readline() == "leased\n"
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(JobBusyError):
        Store(tmp_path).lease("abc", {})
    fall_silent(Store(tmp_path).folder("abc"))
    mine = Store(tmp_path).lease("abc", {})
    process.send_signal(signal.SIGCONT)
    assert finish(process) == "LeaseLostError"
    mine.finish({"by": "me"})
    assert mine.read_results() == {"by": "me"}


def test_a_stopped_owner_whose_job_was_removed_does_not_evict_the_next(tmp_path):
    """Both are the first attempt at the job."""
    store = Store(tmp_path)
    process = owner(tmp_path)
    assert process.stdout.readline() == "leased\n"
    process.send_signal(signal.SIGSTOP)
    fall_silent(store.folder("abc"))
    assert store.remove("abc")
    mine = store.lease("abc", {})
    assert mine.read_status()["attempt"] == 1
    process.send_signal(signal.SIGCONT)
    assert finish(process) == "LeaseLostError"
    mine.finish({"by": "me"})
    assert mine.read_results() == {"by": "me"}


def test_a_heartbeat_of_tomorrow_counts_as_now_and_goes_stale(tmp_path):
    process = owner(tmp_path)
    assert process.stdout.readline() == "leased\n"
    folder = Store(tmp_path).folder("abc")
    tomorrow = time.time() + 86400
    os.utime(folder.status, (tomorrow, tomorrow))
    with pytest.raises(JobBusyError):
        Store(tmp_path).lease("abc", {})
    assert folder.status.stat().st_mtime <= time.time()
    fall_silent(folder)
    assert Store(tmp_path).lease("abc", {}) is not None
    assert finish(process) == "LeaseLostError"


@pytest.mark.slow
def test_a_training_that_wakes_up_late_leaves_its_successor_alone(tmp_path):
    """Metrics, checkpoints and results are those of an undisturbed run, byte for byte."""
    keys = (*TINY, "trainer.max_steps=300", "trainer.log_every=1", "seed=1")

    def start(outputs):
        return warm.start("lmsweep", *keys, LMSWEEP_OUTPUTS=str(outputs))

    late = subprocess.Popen(
        [sys.executable, "-m", "lmsweep", *keys],
        env=environment(tmp_path / "disturbed"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    store = Store(tmp_path / "disturbed")
    wait_until(lambda: any(folder.checkpoint.exists() for folder in store.folders()))
    late.send_signal(signal.SIGSTOP)
    (folder,) = store.folders()
    fall_silent(folder)
    successor = start(tmp_path / "disturbed")
    wait_until(lambda: folder.read_status().get("attempt") == 2)
    late.send_signal(signal.SIGCONT)
    _, told = late.communicate(timeout=1200)
    assert "was taken over" in told
    assert "Traceback" not in told
    undisturbed = start(tmp_path / "alone")
    for done in map(warm.completed, (successor, undisturbed)):
        assert done.returncode == 0, done.stderr
    assert metrics(tmp_path / "disturbed") == metrics(tmp_path / "alone")
