"""Where a result came from: commit, versions, the lock file and the machine."""

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lmsweep.files import sha256_of

ROOT = Path(__file__).resolve().parent.parent
# The widest vectors that torch's kernels use: with others, sums are added in another order.
_INSTRUCTIONS = ("avx512f", "avx2", "avx", "asimd")
_PACKAGES = ("torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


def provenance() -> dict[str, Any]:
    """What the code was, and the machine."""
    return {**code(), "machine": machine()}


@cache
def code() -> dict[str, Any]:
    """The commit of this checkout (None outside of one), whether it was changed, and versions.

    The server of worker processes asks once for all of them, when it has imported the code.
    """
    commit = _git("rev-parse", "HEAD")
    lock = ROOT / "requirements.lock"
    return {
        "commit": commit,
        # Results that are written beside the code do not change it.
        "dirty": bool(_git("status", "--porcelain", "--", ":!results")) if commit else None,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "lock": sha256_of(lock)[:16] if lock.exists() else None,
    }


@cache
def machine() -> dict[str, Any]:
    """What decides how fast a run is, and how its sums are rounded: processor, its instructions, GPUs."""
    flags = _cpuinfo("flags").split() or _cpuinfo("Features").split()
    torch = sys.modules.get("torch")  # who has not imported it computes nothing
    count = torch.cuda.device_count() if torch else 0
    return {
        "cpu": _cpuinfo("model name") or platform.processor(),
        "architecture": platform.machine(),
        "instructions": next((name for name in _INSTRUCTIONS if name in flags), ""),
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(count)] if torch else [],
    }


def machine_name() -> str:
    """The kind of this machine in a few words: durations measured on another kind are not its own."""
    return f"{machine()['cpu']}, {machine()['cores']} cores"


def energy_joules() -> float | None:
    """What the processors say they have used so far (Intel RAPL); None where nobody may read it.

    The counters are the machine's: what else runs on it counts as well.
    """
    try:
        zones = sorted(Path("/sys/class/powercap").glob("intel-rapl:?/energy_uj"))
        return sum(int(zone.read_text()) for zone in zones) / 1e6 if zones else None
    except OSError:
        return None


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no Linux
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


@cache
def version_name() -> str | None:
    """The commit as `git describe` names it; None outside of a checkout."""
    return _git("describe", "--tags", "--always", "--dirty")


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():  # an installed package may lie in a checkout of something else
        return None
    try:
        command = ["git", "-C", str(ROOT), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603 - only git, by words of ours
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
