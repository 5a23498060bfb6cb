"""What a sweep costs beside its training: our launcher, joblib's, and a process per run.

python benchmarks/sweep_overhead.py [runs]. The overhead of a run is wall time times workers minus the time
spent inside training, over the number of runs, start-up of the sweep included. Fails when ours is over the
bar or not the smallest. Writes outputs/bench/sweep_overhead.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

WORKERS = 2
BAR_SECONDS = 0.5
TINY = (
    "trainer.max_steps=60",
    "trainer.val_every=30",
    "model.width=4",
    f"trainer.threads={os.environ.get('OMP_NUM_THREADS', '1')}",
)


def launched(outputs: Path, runs: int, *launcher: str) -> None:
    """One sweep by Hydra."""
    command = [sys.executable, "-m", "lmsweep", "-m", *TINY, f"seed=range({runs})", *launcher]
    subprocess.run(command, env=_environment(outputs), check=True, capture_output=True)  # noqa: S603 - our own command


def one_by_one(outputs: Path, runs: int) -> None:
    """A plain process per run, as many at once as there are workers."""
    waiting, running = deque(range(runs)), []
    while waiting or running:
        while waiting and len(running) < WORKERS:
            command = [sys.executable, "-m", "lmsweep", *TINY, f"seed={waiting.popleft()}"]
            running.append(
                subprocess.Popen(  # noqa: S603 - our own command
                    command, env=_environment(outputs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        running = [process for process in running if process.poll() is None]
        time.sleep(0.01)


def _environment(outputs: Path) -> dict[str, str]:
    return {**os.environ, "LMSWEEP_OUTPUTS": str(outputs), "OMP_NUM_THREADS": "1"}


def main(runs: int) -> int:
    """Measure, print a table, write the file; 1 when the bar is missed."""
    few = max(WORKERS, runs // 4)  # enough for what takes the same seconds for every run
    ways = {
        "lmsweep": (runs, lambda o, n: launched(o, n, f"hydra.launcher.jobs={WORKERS}")),
        "joblib": (
            runs,
            lambda o, n: launched(o, n, "hydra/launcher=joblib", f"hydra.launcher.n_jobs={WORKERS}"),
        ),
        "a process per run": (few, one_by_one),
    }
    rows: dict[str, dict[str, float]] = {}
    for name, (count, way) in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            way(Path(folder), count)
            wall = time.monotonic() - started
            results = [json.loads(path.read_text()) for path in Path(folder).glob("runs/*/results.json")]
        if len(results) != count:
            raise RuntimeError(f"{name}: {len(results)} of {count} runs were trained")
        training = sum(result["seconds"] for result in results)
        rows[name] = {
            "runs": count,
            "wall_seconds": wall,
            "training_seconds": training,
            "overhead_per_run": (wall * WORKERS - training) / count,
        }
        print(
            f"{name:18} {count:3} runs  wall {wall:6.1f} s  "
            f"overhead per run {rows[name]['overhead_per_run']:.3f} s"
        )
    path = Path(os.environ.get("LMSWEEP_OUTPUTS", "outputs")) / "bench" / "sweep_overhead.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")
    ours = rows["lmsweep"]["overhead_per_run"]
    missed = ours > BAR_SECONDS or ours >= min(
        row["overhead_per_run"] for n, row in rows.items() if n != "lmsweep"
    )
    if missed:
        print(
            f"sweep overhead: {ours:.3f} s per run misses its bar of {BAR_SECONDS} s, or is not the smallest"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
