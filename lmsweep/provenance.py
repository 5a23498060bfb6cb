"""Where a result came from: commit and versions."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


@cache
def provenance() -> dict[str, Any]:
    """The commit of this checkout (None outside of one), whether it was changed, and versions."""
    root = Path(__file__).resolve().parent.parent
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    return {
        "commit": commit,
        "dirty": bool(_git(root, "status", "--porcelain")) if commit else None,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def _git(root: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603 - only git, by words of ours
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
