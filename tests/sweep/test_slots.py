"""Which processes work at once, and on what."""

import os
import shutil
import subprocess
import sys

import pytest

from lmsweep.errors import ConfigError
from lmsweep.sweep.local import LocalLauncher
from lmsweep.sweep.plan import cores_for, slots, usable_cores, visible_gpus


def places(**keys):
    return slots(**{"jobs": None, "runs_per_gpu": 1, "gpus": [], "cores": 4, **keys})


def test_without_gpus_there_is_one_process_per_core_or_as_many_as_asked_for():
    assert places() == [{}] * 4
    assert places(jobs=7) == [{}] * 7


def test_every_process_sees_one_gpu_and_neighbours_come_last():
    assert places(gpus=["2", "5"]) == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    packed = [slot["CUDA_VISIBLE_DEVICES"] for slot in places(gpus=["2", "5"], runs_per_gpu=3)]
    assert packed == ["2", "5", "2", "5", "2", "5"]
    assert [s["CUDA_VISIBLE_DEVICES"] for s in places(gpus=["2", "5"], runs_per_gpu=3, jobs=3)] == [
        "2",
        "5",
        "2",
    ]


def test_a_run_over_several_devices_sees_as_many_gpus():
    four = ["0", "1", "2", "3"]
    seen = [slot["CUDA_VISIBLE_DEVICES"] for slot in places(gpus=four, gpus_per_run=2, runs_per_gpu=2)]
    assert seen == ["0,1", "2,3", "0,1", "2,3"]
    assert places(gpus=four, gpus_per_run=3) == [{"CUDA_VISIBLE_DEVICES": "0,1,2"}]
    assert places(gpus=[], gpus_per_run=3, cores=2) == [{}] * 2
    with pytest.raises(ConfigError, match=r"trainer\.devices=8 needs so many GPUs.* has 4"):
        places(gpus=four, gpus_per_run=8)


@pytest.mark.parametrize("key", ["jobs", "runs_per_gpu", "max_failures"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "two", True])
def test_bad_numbers_are_refused(key, value):
    shown = "true" if value is True else value
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{key}={shown} is not allowed.*>= 1"):
        LocalLauncher(**{key: value})


def test_processes_with_more_threads_are_fewer(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 7, 9}, raising=False)
    assert [cores_for(threads) for threads in (1, 2, 3, 4, 5)] == [4, 2, 1, 1, 1]


def test_only_the_cores_of_this_process_count_where_the_system_tells_them(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert (usable_cores(), cores_for(4)) == (6, 1)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset, to bind a process to a core")
def test_a_process_that_is_bound_to_a_core_has_one():
    core = min(os.sched_getaffinity(0))
    code = "from lmsweep.sweep.plan import usable_cores; print(usable_cores())"
    command = ["taskset", "--cpu-list", str(core), sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "1"


def test_gpus_have_the_names_that_the_environment_gives_them(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    assert visible_gpus() == ["3", "GPU-abc"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert visible_gpus() == []
