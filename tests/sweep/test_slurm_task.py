"""One signal path: Lightning keeps out of our jobs, and workers leave Slurm's warning to their parent."""

import os
import signal
import time
from multiprocessing import forkserver

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.plugins.environments import SLURMEnvironment

from lmsweep.processes import Pool
from lmsweep.sweep.slurm import UNSEEN_BY_LIGHTNING


def environment_of_lightning():
    return Trainer(accelerator="cpu", logger=False)._accelerator_connector.cluster_environment


def test_lightning_would_requeue_by_itself_and_does_not_in_our_jobs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    of_srun = {
        "NTASKS": "1",
        "PROCID": "0",
        "LOCALID": "0",
        "NODEID": "0",
        "JOB_ID": "7",
        "JOB_NAME": "lmsweep",
    }
    for name, value in of_srun.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    theirs = environment_of_lightning()
    assert isinstance(theirs, SLURMEnvironment)
    assert theirs.auto_requeue
    for name, value in UNSEEN_BY_LIGHTNING.items():
        monkeypatch.setenv(name, value)
    assert not isinstance(environment_of_lightning(), SLURMEnvironment)


def signalled():
    os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getppid(), signal.SIGUSR2)  # the server that workers are forked from
    time.sleep(0.2)
    return "unharmed"


@pytest.mark.slow
def test_workers_and_their_server_survive_the_warning():
    forkserver._forkserver._stop()  # a server that another test started does not have our signal mask
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))
    pool = Pool([{}])
    try:
        for key in ("first", "second"):
            pool.start(key, signalled)
            deadline = time.monotonic() + 600
            while not (ended := pool.wait(1.0)) and time.monotonic() < deadline:
                pass
            assert [(end.value, end.died, end.error) for end in ended] == [("unharmed", None, None)]
        os.kill(os.getpid(), signal.SIGUSR2)
        assert seen == [signal.SIGUSR2], "this process, the parent, must hear it"
    finally:
        pool.stop()
        signal.signal(signal.SIGUSR2, before)
