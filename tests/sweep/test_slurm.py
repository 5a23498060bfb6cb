"""`hydra/launcher=slurm` on a real Slurm of two nodes: arrays, requeueing, cancelling, a killed parent."""

import json
import os
import re
import shutil
from collections import Counter

import pytest

from tests.commands.test_reproduce import call
from tests.sweep.slurm_cluster import NODES, CannotStartError, SlurmCluster
from tests.sweep.sweeping import TINY, metrics, start, statuses, sweep, wait_until
from tests.sweep.telling import WAITS_AT
from tests.warm import completed

pytestmark = pytest.mark.slow

ON_SLURM = ("hydra/launcher=slurm", "hydra.launcher.poll_seconds=0.3")
# Three methods' worth of runs; cross-entropy knows no gamma, so two of the eight jobs are repeats.
SIX = (*TINY, "model.dropout=0.2", "method=xent,margin", "margin.gamma=1,2", "seed=0,1")
# Runs that wait after 250 of their 400 steps, with a checkpoint of step 200, while there is a file `gate`.
STEPS = 400
GATED = (
    *(f"trainer.max_steps={STEPS}", "trainer.val_every=100", "trainer.batch_size=16", "model.width=2"),
    *("model.dropout=0.2", "method=xent", "model._target_=tests.sweep.telling.Telling"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster, pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.environment.items():
                patch.setenv(name, value)
            yield cluster
    except CannotStartError as error:
        pytest.skip(f"no Slurm cluster can be started here: {error}")


def told(outputs):
    """How often each process trained the network, and which handler of SIGUSR1 it saw."""
    lines = {int(file.name): file.read_text().split(maxsplit=1) for file in (outputs / "told").glob("*")}
    return {pid: (int(words[0]), words[1].strip()) for pid, words in lines.items() if words}


def waiting(outputs):
    return [pid for pid, (times, _) in told(outputs).items() if times == WAITS_AT]


def status_of(outputs):
    answer = call(outputs, "status", "--json")
    assert answer.returncode == 0, answer.stderr
    return {row["run"]: row for row in json.loads(answer.stdout)["runs"]}


def test_an_array_over_two_nodes_gives_what_the_local_launcher_gives(cluster, tmp_path):
    locally = sweep(tmp_path / "local", *SIX)
    assert locally.returncode == 0, locally.stderr
    before = set(cluster.jobs())
    done = sweep(tmp_path / "slurm", *SIX, *ON_SLURM, "hydra.launcher.runs_per_job=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6 runs (8 jobs, 2 of them repeats): 6 done, in ")
    jobs = {job: told for job, told in cluster.jobs().items() if job not in before}
    assert len(jobs) == 3
    assert len({job.split("_")[0] for job in jobs}) == 1, "not one array"
    assert {node for _, node in jobs.values()} == set(NODES)
    assert {status["slurm"] for status in statuses(tmp_path / "slurm").values()} == set(jobs)
    assert metrics(tmp_path / "slurm") == metrics(tmp_path / "local")
    again = sweep(tmp_path / "slurm", *SIX, *ON_SLURM)
    assert "6 cached" in again.stdout
    assert set(cluster.jobs()) == before | set(jobs), "finished runs were submitted"


def test_requeued_it_goes_on_from_its_checkpoint_and_ends_the_same(cluster, tmp_path):
    """One task is requeued by Slurm (SIGTERM), the other gets the warning before a time limit (SIGUSR2)."""
    outputs = tmp_path / "slurm"
    outputs.mkdir()
    (outputs / "gate").touch()
    parent = start(outputs, *GATED, "seed=0,1", *ON_SLURM)
    wait_until(lambda: len(waiting(outputs)) == 2 or parent.poll() is not None)
    first, second = sorted(status["slurm"] for status in statuses(outputs).values())
    cluster.call("scontrol", "requeue", first)
    cluster.call("scancel", "--signal=USR2", second)
    for job in (first, second):
        cluster.start_again(job)
    locally = sweep(tmp_path / "local", *GATED, "seed=0,1")
    assert locally.returncode == 0, locally.stderr
    done = completed(parent)
    assert done.returncode == 0, done.stderr
    assert "stopped before its end" in done.stderr
    ends = [(status["state"], status["attempt"], status["restart"]) for status in statuses(outputs).values()]
    assert ends == [("done", 2, 1)] * 2
    assert metrics(outputs) == metrics(tmp_path / "local")
    seen = told(outputs)
    assert sorted(times for times, _ in seen.values()) == [STEPS - 200] * 2 + [WAITS_AT] * 2
    # Lightning has not put its own requeueing beside submitit's.
    assert {handler for _, handler in seen.values()} == {"<Handlers.SIG_DFL: 0>"}


def test_a_killed_parent_a_failed_node_and_a_cancelled_task_lose_nothing_else(cluster, tmp_path):
    grid = (*GATED, "seed=0,1,2", *ON_SLURM)
    (tmp_path / "gate").touch()
    before = len(cluster.jobs())
    parent = start(tmp_path, *grid)
    wait_until(lambda: [s.get("slurm") is not None for s in statuses(tmp_path).values()] == [True] * 3)
    parent.kill()
    completed(parent)
    wait_until(lambda: len(waiting(tmp_path)) == 2)
    rows = status_of(tmp_path)
    assert {row["state"] for row in rows.values()} == {"queued", "running"}
    assert len({row["slurm"] for row in rows.values()}) == 3

    victim, survivor = (name for name, row in rows.items() if row["state"] == "running")
    node = cluster.jobs()[rows[survivor]["slurm"]][1]
    cluster.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    cluster.call("scancel", rows[victim]["slurm"])
    cluster.start_again(rows[survivor]["slurm"])
    (tmp_path / "gate").unlink()
    followed = sweep(tmp_path, *grid, "retry=none")
    # Not earlier: a job that comes back to a node on which its old step still ends is held.
    cluster.call("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert followed.returncode == 1
    assert f"cancelled: Slurm job {rows[victim]['slurm']} was stopped with scancel" in followed.stderr
    assert followed.stderr.splitlines()[-1] == "1 of 3 runs failed; the others are complete."
    assert len(cluster.jobs()) == before + 3, "what was on its way was submitted again"
    assert {name: row["state"] for name, row in status_of(tmp_path).items()} == {
        name: "failed" if name == victim else "done" for name in rows
    }

    submitted = sweep(tmp_path, *grid, "hydra.launcher.wait=false")
    assert submitted.returncode == 0, submitted.stderr
    assert submitted.stdout.startswith("3 runs: 2 cached, 1 on their way, in ")
    assert status_of(tmp_path)[victim]["state"] in ("queued", "running")
    done = sweep(tmp_path, *grid)
    assert done.stdout.startswith("3 runs: 1 done, 2 cached, in "), done.stderr
    assert len(cluster.jobs()) == before + 4, "more than the cancelled run was submitted"
    assert {name: status["attempt"] for name, status in statuses(tmp_path).items()} == {
        name: 2 if name in (victim, survivor) else 1 for name in rows
    }


# MaxSubmitJobs takes a database of accounts, so this stands in front of sbatch and says what it would say.
FOUR_AT_MOST = """#!/bin/sh
tasks=$(sed -n 's/.*--array=0-\\([0-9]*\\).*/\\1/p' "$1")
queued=$(squeue --noheader --array --states=PENDING,RUNNING | wc -l)
if [ $((queued + ${{tasks:-0}} + 1)) -gt 4 ]; then
    echo refused >> {log}
    echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
    echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" >&2
    exit 1
fi
echo $((queued + ${{tasks:-0}} + 1)) >> {log}
exec {sbatch} "$@"
"""


def test_arrays_longer_than_allowed_are_split_and_fed_and_two_sweeps_share_them(
    cluster, tmp_path, monkeypatch
):
    """The cluster takes arrays of three, and here four tasks in the queue."""
    script, log = tmp_path / "bin" / "sbatch", tmp_path / "asked"
    script.parent.mkdir()
    script.write_text(FOUR_AT_MOST.format(log=log, sbatch=shutil.which("sbatch")))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    before, outputs = set(cluster.jobs()), tmp_path / "slurm"
    grid = (*TINY, "method=xent", *ON_SLURM)
    both = [start(outputs, *grid, f"seed={seeds}") for seeds in ("range(6)", "range(3,6)")]
    for done in map(completed, both):
        assert done.returncode == 0, done.stderr
    jobs = [job for job in cluster.jobs() if job not in before]
    assert len(jobs) == 6, "a run was submitted twice, or not at all"
    assert max(Counter(job.split("_")[0] for job in jobs).values()) <= 3
    assert {status["attempt"] for status in statuses(outputs).values()} == {1}
    asked = log.read_text().split()
    assert "refused" in asked
    assert max(int(word) for word in asked if word != "refused") <= 4


def test_a_sweep_that_only_fails_is_stopped_on_the_cluster_too(cluster, tmp_path):
    model = "model._target_=tests.sweep.raising.Raising"
    grid = (*TINY, "method=xent", model, "seed=range(8)", "hydra.launcher.max_failures=2")
    done = sweep(tmp_path, *grid, *ON_SLURM, "hydra.launcher.max_queued=2")
    assert done.returncode == 1
    # When the sweep has seen one of them fail, two more can have failed, and two be submitted in their place.
    reason = (
        r"Stopped, because the first [2-5] runs all failed for one reason: ArithmeticError: the network broke"
    )
    assert re.match(reason, done.stderr.splitlines()[-1])
    wait_until(lambda: not cluster.call("squeue", "--noheader").strip(), 300)
    tried = [status for status in statuses(tmp_path).values() if status.get("slurm")]
    assert 2 <= len(tried) <= 5


def test_a_run_over_two_tasks_is_that_of_one_process(cluster, tmp_path):
    run = (*TINY, "method=margin", "seed=0", "trainer.accelerator=cpu")
    alone = sweep(tmp_path / "one", *run)
    assert alone.returncode == 0, alone.stderr
    over_two = ("trainer=ddp", "trainer.devices=1", "trainer.num_nodes=2", "hydra.launcher.nodes=2")
    done = sweep(tmp_path / "two", *run, *over_two, *ON_SLURM)
    assert done.returncode == 0, done.stderr
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert one.keys() == two.keys()  # how many processes train it does not make another run
    for name, (values, _) in one.items():
        assert two[name][0] == pytest.approx(values, rel=1e-4)


# Two seeds of three methods with two steps each: white-box and black-box attacks, and an audit.
FIGURE = (
    *("fig3_mnist_ifgsm", "seed=0,1", "method=xent,margin", "margin.layers=all", "margin.norm=1,2"),
    *("trainer.max_steps=2", "trainer.val_every=2", "trainer.batch_size=8"),
    "++grid.evaluation=['samples=10','attack.alpha=0.1']",
    "++grid.audit=['samples=10','attack.queries=2','attack.targets=1','attack.apgd_steps=2','attack.minimal_steps=2','alpha=0.1']",
)


def test_a_whole_figure_on_the_cluster_is_that_of_this_machine(cluster, tmp_path):
    """With wait=false each call goes on with what can be done next: train, evaluate, draw."""
    here, there = tmp_path / "here", tmp_path / "there"
    locally = call(here, "reproduce", *FIGURE)
    assert locally.returncode == 0, locally.stderr
    slurm = (*ON_SLURM, "hydra.launcher.wait=false", "hydra.launcher.runs_per_job=10")
    for stage in ("runs are on their way", "evaluations are on their way", "Done in"):
        called = call(there, "reproduce", *FIGURE, *slurm)
        assert called.returncode == 0, called.stderr
        assert stage in called.stdout
        wait_until(lambda: not cluster.call("squeue", "--noheader").strip(), 1200)
    (drawn,) = (here / "figures").iterdir()
    for file in sorted(drawn.iterdir()):
        other = there / "figures" / drawn.name / file.name
        if file.suffix == ".json":  # all but the seconds of training, and so the checksum
            record, same = (json.loads(path.read_text()) for path in (file, other))
            assert record.pop("training").keys() == same.pop("training").keys()
            assert len(record.pop("checksum")) == len(same.pop("checksum"))
            assert same == record
        else:
            assert other.read_bytes() == file.read_bytes(), file.name
    assert len(record["evaluations"]) > 10
    assert len(record["audit"]) == 3
    logs = [folder / "log.txt" for folder in (there / "evaluations").iterdir() if folder.is_dir()]
    assert all(log.exists() for log in logs if not log.parent.name.startswith("."))
