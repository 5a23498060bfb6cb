"""A killed evaluation goes on where it was, to the same results."""

import shutil
import subprocess
import sys
import time

import pytest
import torch

from lmsweep.commands.jobs import measurement_job
from lmsweep.evaluation.jobs import attack_measurements, audit_measurement
from lmsweep.evaluation.runs import find_run
from lmsweep.store.job import run_job
from tests.evaluation.conftest import audit_request, named, request

HANGS_AFTER_SECONDS = 600
ENSEMBLE = ("attack.apgd_steps=10", "attack.targets=1", "attack.minimal_steps=5", "attack.queries=20")
KEYS = ("batch_size=10", "samples=100", *ENSEMBLE)


def job_of(kind, outputs, run):
    """An attack or an audit of a run, in ten batches."""
    which = named({"it": run}, "it")
    if kind == "audit":
        config = audit_request(outputs, which, *KEYS, "epsilons=[0.1]", "source=none")
        return measurement_job(*audit_measurement(config, find_run(outputs, run)))
    config = request(outputs, which, *KEYS, "attack=ensemble", "attack.epsilons=[0.05,0.1]")
    (wanted,), stored = attack_measurements(config)
    return measurement_job(wanted, stored)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "found"), [("attack", "curves"), ("audit", "evidence")])
def test_a_killed_evaluation_goes_on_to_the_same_result_bit_for_bit(runs, tmp_path, kind, found):
    outputs, ids = runs
    for name in ("killed", "undisturbed"):
        shutil.copytree(outputs / "runs" / ids["xent0"], tmp_path / name / "runs" / ids["xent0"])
    job = job_of(kind, tmp_path / "killed", ids["xent0"])
    code = f"from {__name__} import *; run_job(job_of({kind!r}, {job.outputs!r}, {ids['xent0']!r}))"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + HANGS_AFTER_SECONDS
    while not job.folder.last.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    parts = torch.load(job.folder.last, weights_only=True)
    assert job.folder.read_results() is None
    assert "batch/9" not in parts
    resumed, whole = (run_job(one) for one in (job, job_of(kind, tmp_path / "undisturbed", ids["xent0"])))
    assert resumed["id"] == whole["id"]
    assert resumed[found] == whole[found]
    assert job.folder.read_status()["attempt"] == 2
    assert not job.folder.last.exists()
