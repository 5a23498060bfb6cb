"""What the store makes of Slurm's answers, and of none."""

import json
import os

import pytest

from lmsweep.errors import UserError
from lmsweep.store.housekeeping import remove
from lmsweep.store.lease import SLURM_JOB, JobBusyError, LeaseLostError
from lmsweep.store.store import Store, overview
from lmsweep.sweep.slurm_jobs import ask_slurm, settle_jobs


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def on_another_host(folder, **changes):
    folder.status.write_text(
        json.dumps({**folder.read_status(), "host": "far-away", "place": "far", **changes})
    )


def test_a_job_that_was_requeued_takes_its_own_claim_over_at_once(store, monkeypatch):
    monkeypatch.setenv(SLURM_JOB, "7_1")
    before = store.lease("abc", {})
    assert before.read_status()["slurm"] == "7_1"
    on_another_host(before)
    with pytest.raises(JobBusyError):
        store.lease("abc", {})  # by another node of the same job: its heartbeat is fresh
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    after = store.lease("abc", {})
    assert (after.read_status()["attempt"], after.read_status()["restart"]) == (2, 1)
    with pytest.raises(LeaseLostError):
        before.check_lease()  # should its node have been out of reach only
    on_another_host(after)
    monkeypatch.setenv(SLURM_JOB, "7_2")
    with pytest.raises(JobBusyError):
        store.lease("abc", {})  # by another job


def test_a_pending_run_with_a_job_is_queued_and_keeps_its_job(store, tmp_path):
    store.submit("abc", {}, {})
    store.assign("abc", "7_1")
    assert overview(tmp_path) == [{"run": "abc", "state": "queued", "slurm": "7_1"}]
    store.lease("done", {}).finish({"seconds": 0, "metrics": {}})
    store.assign("done", "7_2")
    assert "slurm" not in store.folder("done").read_status()


def test_where_slurm_cannot_be_asked_nothing_is_given_up(store, monkeypatch, tmp_path):
    store.submit("abc", {}, {})
    store.assign("abc", "7_1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_slurm(["7_1"]) is None
    assert settle_jobs(store) == {"abc"}
    assert store.folder("abc").read_status()["state"] == "pending"
    assert ask_slurm([]) == {}


def test_a_run_that_went_on_since_it_was_seen_is_left_alone(store):
    store.submit("abc", {}, {})
    store.assign("abc", "7_1")
    seen = store.folder("abc").read_status()
    folder = store.lease("abc", {})
    assert not store.lose("abc", seen, "gone")
    assert folder.check_lease()["pid"] == os.getpid()
    now = folder.read_status()
    assert store.lose("abc", now, "gone")
    assert folder.read_status()["reason"] == "gone"
    assert folder.error.read_text().startswith("gone\n")


def test_force_makes_a_finished_run_pending_and_forgets_what_it_left(store):
    folder = store.lease("abc", {})
    folder.checkpoint.touch()
    folder.finish({})
    store.submit("abc", {}, {})
    assert folder.read_status()["state"] == "done"
    store.submit("abc", {}, {}, force=True)
    assert folder.read_status()["state"] == "pending"
    assert not folder.checkpoint.exists()
    assert not folder.results.exists()


def test_a_queued_run_is_not_removed(store, tmp_path):
    store.submit("abc", {}, {})
    store.assign("abc", "7_1")
    with pytest.raises(UserError, match="Run abc waits for Slurm job 7_1; scancel that first"):
        remove(tmp_path, names=["abc"], sweep=None, failed=False)
    assert store.folder("abc").path.is_dir()
