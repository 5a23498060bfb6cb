"""W&B's files as W&B's own reader prints them."""

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.util import get_core_path


@dataclass
class ReadBack:
    run: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    charts: set[str] = field(default_factory=set)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    preempting: bool = False

    @property
    def config(self) -> dict[str, Any]:
        return self.run["config"]["update"]


def files_of(outputs: Path, name: str) -> list[Path]:
    """Every file of the W&B run `name`, oldest first."""
    return sorted((outputs / "wandb").glob(f"offline-run-*/run-{name}.wandb"))


def read_back(file: Path) -> ReadBack:
    """What a file says; W&B's own process may write the end of it a moment after the run has finished."""
    for _ in range(100):
        found = _read(file)
        if found.exit_code is not None:
            break
        time.sleep(0.1)
    return found


def _read(file: Path) -> ReadBack:
    words = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file", file]
    done = subprocess.run([*words, file.parent.parent], capture_output=True, text=True, timeout=600)
    found = ReadBack()
    for record in map(json.loads, done.stdout.splitlines()):
        kind = record["type"]
        value = record.get(kind, {})
        if kind == "run":
            found.run = value
        elif kind == "history":
            found.history.append({k: v for k, v in value["item"].items() if k[0] != "_"})
        elif kind == "summary":
            found.summary |= value.get("update", {})
        elif kind == "config":
            found.charts |= {key.rpartition(".")[2] for key in value["update"] if "visualize" in key}
        elif kind == "artifact":
            found.artifacts.append(value)
        elif kind == "exit":
            found.exit_code = value.get("exit_code", 0)
        elif kind == "preempting":
            found.preempting = True
    return found


def rows(metrics: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl, those of one step as one row, as W&B keeps them."""
    found: dict[int, dict[str, float]] = {}
    for line in map(json.loads, metrics.read_text().splitlines()):
        found.setdefault(line["step"], {}).update(line)
    return list(found.values())
