"""A run over several processes gives what one process gives, or ends with its reason; never a hang."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from lmsweep.commands.jobs import cost_key
from lmsweep.errors import ConfigError
from lmsweep.training.ranks import task_of
from tests import warm
from tests.config.test_run import config, identity
from tests.sweep.sweeping import sweep
from tests.training import two_ranks

# With all that has to be shared out: augmentation, adversarial examples, momentum; an uneven validation set.
SHORT = (
    "trainer.accelerator=cpu",
    "trainer.max_steps=30",
    "trainer.val_every=10",
    "trainer.batch_size=32",
    "model=own",
    "model._target_=tests.training.failing.FailingNet",
    "+model.fails=-1",
    "data.augment.pad=1",
    "adversarial=fgsm",
    "data.label_noise=0.2",
    "telemetry.every=30",
    "telemetry.samples=40",
)
DDP = ("trainer=ddp", "trainer.devices=2")


def only_run(outputs: Path) -> Path:
    (run,) = [path for path in (outputs / "runs").iterdir() if path.is_dir()]
    return run


def status(run: Path) -> dict:
    return json.loads((run / "status.json").read_text())


def numbers(run: Path) -> dict[str, float]:
    """Every number that a run leaves, by step and name."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = {f"{line['step']}/{key}": value for line in lines for key, value in line.items()}
    return found | json.loads((run / "results.json").read_text())["metrics"]


def assert_same(run: Path, other: Path, tolerance: float) -> None:
    ours, theirs = numbers(run), numbers(other)
    assert ours.keys() == theirs.keys()
    wrong = {}
    for key, value in ours.items():
        # Distances divide by gradients and so enlarge what 30 steps of rounding have done to the weights.
        relative = tolerance * (100 if "distance" in key else 1)
        if not math.isclose(value, theirs[key], rel_tol=relative, abs_tol=tolerance):
            wrong[key] = (value, theirs[key])
    assert not wrong


@pytest.fixture(scope="module")
def alone(made_once) -> Path:
    def make(outputs: Path) -> Path:
        done = warm.call("lmsweep", *SHORT, LMSWEEP_OUTPUTS=str(outputs))
        assert done.returncode == 0, done.stderr
        return only_run(outputs)

    return made_once("alone", make)


@pytest.fixture(scope="module")
def together(made_once) -> Path:
    return made_once("together", _killed_and_called_again)


def _killed_and_called_again(outputs: Path) -> Path:
    """Two processes, one of which is killed, and the same command again."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lmsweep", *SHORT, *DDP],
        env={**os.environ, "LMSWEEP_OUTPUTS": str(outputs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "step 20/" in line:
            break
    run = only_run(outputs)
    rank_1(status(run)["pid"]).kill()
    out, err = process.communicate(timeout=600)  # a collective call alone would wait for half an hour
    assert process.returncode == 1
    assert out == ""
    assert "The process of rank 1 died by signal 9 (SIGKILL)" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert status(run)["state"] == "pending"
    assert (run / "checkpoint.ckpt").exists()
    again = warm.call("lmsweep", *SHORT, *DDP, LMSWEEP_OUTPUTS=str(outputs))
    assert again.returncode == 0, again.stderr
    assert len(again.stdout.splitlines()) == 1
    return run


def rank_1(pid: int) -> psutil.Process:
    """The process that rank 0's fork server has forked."""
    (server,) = [c for c in psutil.Process(pid).children() if "forkserver" in " ".join(c.cmdline())]
    (rank,) = server.children()
    return rank


@pytest.mark.slow
def test_two_processes_give_what_one_gives_even_when_one_was_killed(alone, together):
    assert_same(together, alone, tolerance=1e-5)
    assert together.name == alone.name, "the number of processes is no part of a run's identity"


@pytest.mark.slow
def test_the_others_leave_no_trace(alone, together):
    assert {p.name for p in together.iterdir()} == {p.name for p in alone.iterdir()}
    seen = status(together)
    assert (seen["state"], seen["attempt"]) == ("done", 2)


@pytest.mark.slow
def test_inside_a_sweep(alone, tmp_path):
    """Two runs of two processes each, at once; in one of them rank 1 fails."""
    done = sweep(tmp_path, *SHORT, *DDP, "model.fails=-1,1", "hydra.launcher.jobs=2")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "1 of 2 runs failed; the others are complete."
    runs = {path.name: path for path in (tmp_path / "runs").iterdir() if path.is_dir()}
    assert_same(runs.pop(alone.name), alone, tolerance=1e-5)
    (failed,) = runs.values()
    assert (status(failed)["state"], status(failed)["reason"]) == ("failed", "ArithmeticError: on purpose")
    assert "On rank 1:" in (failed / "error.txt").read_text()


@pytest.mark.slow
def test_two_tasks_of_a_slurm_step(alone, tmp_path):
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NUM_TASKS": "2", "LMSWEEP_OUTPUTS": str(tmp_path)}
    ranks = [
        warm.start("lmsweep", *SHORT, *DDP, **step, SLURM_PROCID=rank, SLURM_LOCALID=rank)
        for rank in ("0", "1")
    ]
    spoken = [warm.completed(process) for process in ranks]
    assert [done.returncode for done in spoken] == [0, 0], [done.stderr for done in spoken]
    assert len(spoken[0].stdout.splitlines()) == 1
    assert (spoken[1].stdout, spoken[1].stderr) == ("", "")
    assert_same(only_run(tmp_path), alone, tolerance=1e-5)


@pytest.fixture(scope="module")
def shares() -> list[dict]:
    return two_ranks.both()


@pytest.mark.parametrize("mode", two_ranks.MODES)
def test_batch_norm_sees_the_whole_batch_and_the_margin_is_that_of_one_process(mode, shares):
    margin, gradient, statistics = two_ranks.step(mode)
    assert sum(share[mode][0] for share in shares) / 2 == pytest.approx(margin, abs=1e-9)
    torch.testing.assert_close((shares[0][mode][1] + shares[1][mode][1]) / 2, gradient, rtol=0, atol=1e-9)
    for share in shares:
        torch.testing.assert_close(share[mode][2], statistics, rtol=0, atol=1e-12)


BAD = {
    ("trainer.batch_size=33",): r"batch_size=33 is not allowed: it must be divisible by .* = 2",
    ("trainer.num_nodes=3", "trainer.batch_size=32"): r"batch_size=32 .* divisible by .* = 6",
    ("trainer.devices=0",): r"trainer\.devices=0 is not allowed: it must be a whole number >= 1",
    ("trainer.num_nodes=1.5",): r"trainer\.num_nodes=1.5 is not allowed: it must be a whole number >= 1",
    ("trainer.compile=maybe",): r"trainer\.compile=maybe is not allowed: it must be true or false",
}


@pytest.mark.parametrize("wrong", BAD)
def test_bad_values_are_named_in_one_sentence(wrong):
    with pytest.raises(ConfigError, match=BAD[wrong]) as caught:
        config("trainer=ddp", *wrong)
    assert "\n" not in str(caught.value)


def test_the_number_of_processes_counts_for_time_and_not_for_identity():
    one, two = config(), config("trainer=ddp")
    assert identity("trainer=ddp", "trainer.num_nodes=2") == identity()
    assert cost_key(one) != cost_key(two)


STEP = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7"}
NODES = {"SLURM_STEP_NODELIST": "localhost,other", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}


def test_tasks_of_slurm_are_ranks_only_when_the_run_needs_them():
    four = config("trainer=ddp", "trainer.num_nodes=2")
    assert task_of(config(), "id", STEP) is None
    assert task_of(config("trainer=ddp"), "id", {}) is None, "processes are started here"
    assert task_of(config("trainer=ddp"), "id", {"SLURM_NTASKS": "2"}) is None, "sbatch without srun"
    task = task_of(four, "id", STEP | NODES)
    assert (task.rank, task.local_rank, task.address) == (3, 1, "localhost")
    unknown = NODES | {"SLURM_STEP_NODELIST": "no-such-node[3-4]"}
    assert task_of(four, "id", STEP | unknown).address == "10.0.0.9"
    assert task_of(four, "id", STEP | NODES | {"MASTER_ADDR": "a", "MASTER_PORT": "5"}).port == 5
    ports = {task_of(four, name, STEP | NODES | more).port for name in "ab" for more in ({}, RESTARTED)}
    assert len(ports) == 4, "other runs and other lives of a job meet elsewhere"
    for environment in ({}, STEP | {"SLURM_STEP_NUM_TASKS": "3"}):
        with pytest.raises(ConfigError, match=r"needs 4 tasks .* srun --nodes=2 --ntasks-per-node=2\.$"):
            task_of(four, "id", environment)


RESTARTED = {"SLURM_RESTART_COUNT": "1"}
