"""Which processes work at once, and on what."""

import os

import pytest

from lmsweep.errors import ConfigError
from lmsweep.sweep.devices import cores_for, slots, visible_gpus


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


@pytest.mark.parametrize("key", ["jobs", "runs_per_gpu"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "two", True])
def test_bad_numbers_are_refused(key, value):
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{key}={value} is not allowed.*>= 1"):
        places(**{key: value})


def test_processes_with_more_threads_are_fewer():
    mine = len(os.sched_getaffinity(0))
    assert [cores_for(1), cores_for(mine), cores_for(mine + 1)] == [mine, 1, 1]


def test_gpus_have_the_names_that_the_environment_gives_them(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    assert visible_gpus() == ["3", "GPU-abc"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert visible_gpus() == []
