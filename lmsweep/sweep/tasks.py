"""Call many functions in worker processes, and go on when some of them fail."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmsweep.errors import UserError
from lmsweep.sweep.pool import Pool

# A task whose process is killed this often (by a kernel that is short of memory, say) is a failure.
LIVES = 3


def call_each(
    slots: Sequence[Mapping[str, str]], tasks: Mapping[str, Callable[[], Any]], log: Path | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Call every task in a process of its own; return what they returned, and why the others failed."""
    pool, waiting, deaths = Pool(slots), list(tasks), Counter[str]()
    values: dict[str, Any] = {}
    failures: dict[str, str] = {}
    try:
        while waiting or pool.workers:
            while waiting and pool.free:
                key = waiting.pop(0)
                pool.start(key, tasks[key], log)
            for ended in pool.wait(1.0):
                if ended.died:
                    deaths[ended.key] += 1
                    if deaths[ended.key] < LIVES:
                        waiting.append(ended.key)
                    else:
                        failures[ended.key] = f"its process died {LIVES} times, the last time by {ended.died}"
                elif ended.error is not None:
                    failures[ended.key] = reason(ended.error)
                else:
                    values[ended.key] = ended.value
    finally:
        pool.stop()
    return values, failures


def reason(error: BaseException) -> str:
    """An error in one line."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
