"""What Slurm knows of its jobs, and what follows from that for the jobs of ours that they were to run."""

import re
import subprocess
from collections.abc import Iterable

from lmsweep.store.store import Store

ASK_SECONDS = 60.0

# States of jobs that will not come back. Slurm forgets a job a few minutes after its end (MinJobAge).
OVER = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"),
    *("DEADLINE", "PREEMPTED", "REVOKED"),
}
QUEUED = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}

_REASONS = {
    "CANCELLED": "cancelled: Slurm job {job} was stopped with scancel",
    "TIMEOUT": "Slurm job {job} reached its time limit; raise hydra.launcher.time",
    "OUT_OF_MEMORY": "Slurm job {job} ran out of memory; raise hydra.launcher.memory",
    "PREEMPTED": "Slurm job {job} was preempted, and the cluster did not requeue it",
    "NODE_FAIL": "the node of Slurm job {job} failed, and the cluster did not requeue it",
    None: "cancelled or lost: Slurm does not know job {job} any more, and it left no result",
}
_OTHERWISE = "Slurm job {job} ended ({state}) before the run did"


def ask_slurm(jobs: Iterable[str]) -> dict[str, str] | None:
    """The state of each of `jobs` (such as 12_3) that Slurm still knows; None when it cannot be asked."""
    arrays = sorted({job.split("_")[0] for job in jobs})
    if not arrays:
        return {}
    command = ("squeue", "--noheader", "--array", "--states=all", "--format=%i %T", "--jobs")
    answer = _answer(*command, ",".join(arrays))
    if answer is None or (answer.returncode and "Invalid job id" not in answer.stderr):
        return None
    lines = [line.split() for line in answer.stdout.splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 2}


def max_array_size() -> int | None:
    """How many tasks an array may have here; None where Slurm does not say."""
    answer = _answer("scontrol", "show", "config")
    said = answer and re.search(r"^MaxArraySize\s*=\s*(\d+)", answer.stdout, re.MULTILINE)
    return max(1, int(said[1])) if said else None


def _answer(*command: str) -> subprocess.CompletedProcess[str] | None:
    """What a command of Slurm says; None where there is no such command, or no answer in time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS)  # noqa: S603 - words of ours and ids of jobs, no shell
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None


def settle_jobs(store: Store, names: Iterable[str] | None = None) -> set[str]:
    """Update jobs whose Slurm job is over, or queued again; return those that a Slurm job still has.

    Without `names`, every job of the store. Where Slurm cannot be asked, nothing is changed and its jobs
    are taken to go on.
    """
    seen = {
        name: status
        for name, (status, _) in store.entries(names).items()
        if status.get("slurm") and status.get("state") in ("pending", "running")
    }
    states = ask_slurm(status["slurm"] for status in seen.values())
    if states is None:
        return set(seen)
    alive = set()
    for name, status in seen.items():
        job = status["slurm"]
        state = states.get(job)
        if state is None or state in OVER:
            store.lose(name, status, _REASONS.get(state, _OTHERWISE).format(job=job, state=state))
            continue
        if state in QUEUED and status["state"] == "running":
            store.lose(name, status, None)  # its process is gone, and Slurm will start another one
        alive.add(name)
    return alive
