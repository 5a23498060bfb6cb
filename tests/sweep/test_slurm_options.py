"""Keys of the Slurm launcher: what sbatch is given, and sentences about what it cannot be given."""

import sys
from pathlib import Path

import pytest
import yaml

from lmsweep.config.fields import explained
from lmsweep.config.hydra import config_folder
from lmsweep.config.run import RunConfig
from lmsweep.errors import ConfigError
from lmsweep.sweep.slurm import SlurmLauncher
from lmsweep.sweep.sweeper import make_launcher
from tests.sweep.sweeping import TINY, states, sweep


def options(**changes):
    keys = yaml.safe_load((Path(config_folder()) / "hydra" / "launcher" / "slurm.yaml").read_text())
    return SlurmLauncher(**{key: keys[key] for key in keys if not key.startswith("_")} | changes).options


def test_the_cluster_decides_what_is_not_said():
    given = options().parameters()
    assert not {"partition", "account", "qos", "mem", "gpus_per_node"} & set(given)
    assert given["additional_parameters"] == {"requeue": True}


def test_every_key_reaches_sbatch_or_srun():
    given = options(
        partition="gpu",
        account="lab",
        qos="low",
        memory=1.5,
        gpus_per_node=8,
        cpus_per_task=4,
        setup=["module load cuda"],
        sbatch={"constraint": "a100"},
        srun=["--cpu-bind=cores"],
        signal_seconds=60,
    ).parameters()
    assert (given["partition"], given["account"], given["qos"]) == ("gpu", "lab", "low")
    assert (given["mem"], given["gpus_per_node"], given["signal_delay_s"]) == ("1536M", 8, 60)
    assert given["additional_parameters"] == {"requeue": True, "constraint": "a100"}
    assert given["srun_args"] == ["--cpus-per-task=4", "--cpu-bind=cores"]
    assert given["setup"] == ["module load cuda"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"time": 0}, "hydra.launcher.time=0 is not allowed: it must be a whole number of minutes >= 1"),
        ({"wait": "later"}, "hydra.launcher.wait=later is not allowed: it must be true or false"),
        ({"memory": -1}, "hydra.launcher.memory=-1 is not allowed: it must be a number of GB > 0, or null"),
        ({"setup": "ls"}, "hydra.launcher.setup=ls is not allowed: it must be a list of shell commands"),
    ],
)
def test_a_bad_value_is_named(change, sentence):
    with pytest.raises(ConfigError) as raised:
        options(**change)
    assert str(raised.value).startswith(sentence)
    assert str(raised.value).endswith("in conf/hydra/launcher/slurm.yaml.")


def test_what_hydra_adds_to_the_sentence_is_left_out():
    keys = {"_target_": "hydra_plugins.lmsweep.LocalLauncher", "jobs": 0}
    with pytest.raises(ConfigError, match=r"^hydra\.launcher\.jobs=0 is not allowed"), explained(RunConfig):
        make_launcher(keys)


def test_without_slurm_it_says_so_and_a_rehearsal_needs_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    grid = (*TINY, "seed=0,1", "hydra/launcher=slurm")
    done = sweep(tmp_path, *grid)
    assert done.returncode == 1
    assert done.stderr.startswith("hydra/launcher=slurm needs sbatch and srun, which are not here; ")
    assert len(done.stderr.splitlines()) == 1
    assert states(tmp_path) == ["pending"] * 2
    rehearsed = sweep(tmp_path, *grid, "dry_run=true")
    assert "To train: 2 of 2 runs" in rehearsed.stdout
