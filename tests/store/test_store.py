"""Claims, whole files, and who may take over a run: with real processes."""

import dataclasses
import json
import multiprocessing
import os
import socket
import time
from contextlib import contextmanager, nullcontext

import pytest

from lmsweep.errors import GivenBackError, UserError
from lmsweep.files import StoreUnwritableError, write_atomically
from lmsweep.store.job import Job, JobFailedError, run_job
from lmsweep.store.lease import STALE_AFTER_SECONDS, JobBusyError, LeaseLostError, beating
from lmsweep.store.store import Store
from tests.sweep.sweeping import wait_until


def claim_and_wait(root, results, barrier):
    barrier.wait()
    try:
        folder = Store(root).lease("abc", {"seed": 1})
        results.put("claimed" if folder else "done")
    except JobBusyError:
        results.put("busy")
    barrier.wait()  # the claim of a process that ended could be taken over


def test_of_many_processes_one_gets_the_run(tmp_path):
    context = multiprocessing.get_context("fork")
    results, barrier = context.Queue(), context.Barrier(8)
    workers = [context.Process(target=claim_and_wait, args=(tmp_path, results, barrier)) for _ in range(8)]
    for worker in workers:
        worker.start()
    answers = sorted(results.get(timeout=600) for _ in workers)
    for worker in workers:
        worker.join()
    assert answers == ["busy"] * 7 + ["claimed"]


def test_a_claim_of_a_dead_process_is_taken_over_and_counted(tmp_path):
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=lambda: (Store(tmp_path).lease("abc", {}), os._exit(9)))
    worker.start()
    worker.join()
    folder = Store(tmp_path).lease("abc", {})
    assert folder.read_status()["attempt"] == 2
    assert folder.read_status()["pid"] == os.getpid()


ANOTHER = {"attempt": 7, "token": "another"}


def edit_status(folder, **changes):
    folder.status.write_text(json.dumps({**folder.read_status(), **changes}))


def test_a_process_id_that_was_given_out_again_does_not_hold_a_claim(tmp_path):
    store = Store(tmp_path)
    folder = store.lease("abc", {})
    with pytest.raises(JobBusyError, match=str(os.getpid())):
        store.lease("abc", {})
    edit_status(folder, pid_started=folder.read_status()["pid_started"] - 100)
    assert store.lease("abc", {}).read_status()["attempt"] == 2


def test_a_claim_from_another_host_lives_as_long_as_its_heartbeat(tmp_path):
    store = Store(tmp_path)
    folder = store.lease("abc", {})
    edit_status(folder, host=f"not-{socket.gethostname()}", place="another machine", pid=1)
    with pytest.raises(JobBusyError, match="not-"):
        store.lease("abc", {})
    old = time.time() - STALE_AFTER_SECONDS - 1
    os.utime(folder.status, (old, old))
    folder.beat()
    with pytest.raises(JobBusyError):
        store.lease("abc", {})
    os.utime(folder.status, (old, old))
    assert store.lease("abc", {}) is not None


def test_the_life_of_a_run(tmp_path):
    store = Store(tmp_path)
    folder = store.lease("abc", {"seed": 3})
    assert folder.config.read_text() == "seed: 3\n"
    assert folder.read_results() is None
    folder.fail("it broke", "Traceback ...")
    assert folder.read_status()["state"] == "failed"
    assert folder.error.read_text().startswith("it broke")
    folder = store.lease("abc", {"seed": 3})
    folder.release()
    assert folder.read_status()["state"] == "pending"
    folder = store.lease("abc", {"seed": 3})
    folder.finish({"metrics": {"accuracy": 1.0}})
    assert folder.read_status()["attempt"] == 3
    assert folder.read_results() == {"metrics": {"accuracy": 1.0}}
    assert not folder.error.exists()
    assert "reason" not in folder.read_status()
    assert store.lease("abc", {"seed": 3}) is None


def test_a_process_that_lost_its_claim_leaves_the_run_alone(tmp_path):
    store = Store(tmp_path)
    slow = store.lease("abc", {})
    edit_status(slow, host="elsewhere", place="elsewhere")
    old = time.time() - STALE_AFTER_SECONDS - 1
    os.utime(slow.status, (old, old))
    owner = store.lease("abc", {})
    for end in (slow.release, lambda: slow.fail("late", ""), lambda: slow.finish({"late": True})):
        with pytest.raises(LeaseLostError, match="taken over"):
            end()
    assert not slow.results.exists()
    assert not slow.error.exists()
    owner.finish({"late": False})
    assert owner.read_results() == {"late": False}


def job_of(root, work):
    """A job that does `work`, a function of its folder."""
    return Job(
        kind="run",
        id="abc",
        outputs=str(root),
        config={},
        about={},
        begin=lambda: nullcontext(work),
        summary=str,
    )


def test_a_job_is_run_once_and_its_results_are_read_afterwards(tmp_path):
    calls = []
    job = job_of(tmp_path, lambda folder: calls.append(folder.id) or {"n": len(calls)})
    assert [run_job(job), run_job(job)] == [{"n": 1}] * 2
    assert run_job(job, force=True) == {"n": 2}
    assert calls == ["abc", "abc"]


def test_what_the_job_opened_is_closed_after_the_results_are_recorded(tmp_path):
    states = []

    @contextmanager
    def begin():
        yield lambda folder: {"n": 1}
        states.append(job.folder.read_status()["state"])

    job = dataclasses.replace(job_of(tmp_path, None), begin=begin)
    run_job(job)
    assert states == ["done"]


def test_an_error_is_recorded_as_the_jobs_failure_and_told_in_one_sentence(tmp_path):
    def work(folder):
        raise ArithmeticError("the real reason")

    job = job_of(tmp_path, work)
    with pytest.raises(JobFailedError, match=r"Run abc failed: ArithmeticError: the real reason \(details"):
        run_job(job)
    assert job.folder.read_status()["state"] == "failed"


@pytest.mark.parametrize("error", [KeyboardInterrupt, GivenBackError("not here")])
def test_work_that_was_stopped_is_given_back(tmp_path, error):
    def work(folder):
        raise error

    job = job_of(tmp_path, work)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else GivenBackError):
        run_job(job)
    assert job.folder.read_status()["state"] == "pending"


def test_a_claim_that_is_lost_in_the_work_is_no_failure_of_the_run(tmp_path):
    def work(folder):
        edit_status(folder, **ANOTHER)
        folder.check_lease()

    job = job_of(tmp_path, work)
    with pytest.raises(LeaseLostError):
        run_job(job)
    assert job.folder.read_status()["attempt"] == 7
    assert job.folder.read_status()["state"] == "running"
    assert not job.folder.error.exists()


def test_the_reason_of_a_failure_is_told_though_the_claim_was_lost(tmp_path):
    def fail(folder):
        edit_status(folder, **ANOTHER)
        raise ArithmeticError("the real reason")

    job = job_of(tmp_path, fail)
    with pytest.raises(JobFailedError, match="the real reason"):
        run_job(job)
    assert job.folder.read_status()["state"] == "running"


def test_a_disk_that_is_full_already_is_told_as_that(tmp_path, monkeypatch):
    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreUnwritableError, match="make room"):
        run_job(job_of(tmp_path, lambda folder: {}))


def test_a_folder_that_cannot_be_reached_for_a_while_gets_its_next_heartbeat(tmp_path):
    folder = Store(tmp_path).lease("abc", {})
    away = folder.status.rename(tmp_path / "away")
    beats = []

    def beat():
        beats.append(folder.status.exists())
        folder.beat()

    with beating(beat, every_seconds=0.05):
        wait_until(lambda: beats)  # nothing is there to beat for
        os.utime(away, (0, 0))
        away.rename(folder.status)
        wait_until(lambda: folder.status.stat().st_mtime > 0)
    assert not beats[0]


def test_a_new_claim_clears_what_a_killed_process_left(tmp_path):
    folder = Store(tmp_path).lease("abc", {})
    folder.fail("it broke", "")
    (folder.path / ".results.json.123.tmp").write_text("half")
    folder = Store(tmp_path).lease("abc", {})
    assert sorted(p.name for p in folder.path.iterdir()) == ["config.yaml", "status.json"]


def test_the_heartbeat_goes_on_while_the_work_is_busy(tmp_path):
    folder = Store(tmp_path).lease("abc", {})
    with beating(folder.beat, every_seconds=0.05):
        for _ in range(3):
            os.utime(folder.status, (0, 0))
            wait_until(lambda: folder.status.stat().st_mtime > 0)
    os.utime(folder.status, (0, 0))
    time.sleep(0.2)
    assert folder.status.stat().st_mtime == 0


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "status.json"
    write_atomically(path, "old")

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]


def test_a_store_that_cannot_be_written_is_named():
    with pytest.raises(UserError, match=r"outputs=/proc/nowhere cannot be written.*LMSWEEP_OUTPUTS"):
        Store("/proc/nowhere").lease("abc", {})


def test_a_submitted_run_waits_with_its_frozen_configuration(tmp_path):
    store = Store(tmp_path)
    store.submit("abc", {"seed": 1}, {"method": "xent"})
    folder = store.folder("abc")
    assert folder.read_status()["state"] == "pending"
    assert folder.config.read_text() == "seed: 1\n"
    store.submit("abc", {"seed": 2}, {"method": "xent"})
    assert folder.config.read_text() == "seed: 2\n"
    claimed = store.lease("abc", {"seed": 2})
    assert claimed.read_status()["about"] == {"method": "xent"}
    store.submit("abc", {"seed": 3}, {})
    assert (folder.read_status()["state"], folder.config.read_text()) == ("running", "seed: 2\n")
    claimed.fail("it broke", "", final=True)
    store.submit("abc", {"seed": 3}, {})
    assert folder.read_status().keys() == {"state", "attempt", "created", "about"}
    store.lease("abc", {}).finish({})
    store.submit("abc", {"seed": 4}, {})
    assert folder.read_status()["state"] == "done"


def test_force_starts_afresh(tmp_path):
    store = Store(tmp_path)
    folder = store.lease("abc", {})
    folder.checkpoint.write_text("old")
    folder.metrics.write_text("old")
    folder.finish({"old": True})
    again = store.lease("abc", {}, force=True)
    assert again.read_status()["attempt"] == 2
    assert not any(file.exists() for file in (folder.checkpoint, folder.metrics, folder.results))


def test_a_run_is_given_back_only_when_its_process_is_gone(tmp_path):
    store = Store(tmp_path)
    folder = store.lease("abc", {})
    store.give_back("abc")
    assert folder.read_status()["state"] == "running"
    edit_status(folder, pid=2**22 + 1)
    store.give_back("abc")
    assert folder.read_status()["state"] == "pending"


def test_a_live_run_is_not_removed(tmp_path):
    store = Store(tmp_path)
    folder = store.lease("abc", {})
    assert not store.remove("abc")
    folder.release()
    assert store.remove("abc")
    assert store.folders() == []
    assert [path.name for path in store.root.iterdir()] == [".lock"]
