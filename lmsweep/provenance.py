"""Where a result came from: commit and versions."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


@cache
def provenance() -> dict[str, Any]:
    """The commit of this checkout (None outside of one), whether it was changed, and versions."""
    commit = _git(_ROOT, "rev-parse", "HEAD") if (_ROOT / ".git").exists() else None
    return {
        "commit": commit,
        "dirty": bool(_git(_ROOT, "status", "--porcelain")) if commit else None,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


@cache
def version_name() -> str | None:
    """The commit as `git describe` names it; None outside of a checkout."""
    if not (_ROOT / ".git").exists():
        return None
    return _git(_ROOT, "describe", "--tags", "--always", "--dirty")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603 - only git, by words of ours
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
