"""W&B's viewer in a terminal shows what a sweep left."""

import shutil
import subprocess
import time

import pytest
from wandb.util import get_core_path

from tests.tracking.reading import files_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux, as a terminal to look at"),
]


def test_wandb_leet_opens_a_run_and_finds_its_metrics(tracked_sweep, tmp_path):
    (name,) = tracked_sweep.done
    (file,) = files_of(tracked_sweep.outputs, name)
    tmux = ["tmux", "-S", str(tmp_path / "socket")]
    fresh = ["env", f"WANDB_CONFIG_DIR={tmp_path}"]  # whichever panes were open the last time
    viewer = [*fresh, get_core_path(), "leet", "run", "--no-observability", "--run-file", str(file)]
    terminal = ["new-session", "-d", "-x", "150", "-y", "45"]
    subprocess.run([*tmux, *terminal, *viewer, str(file.parent.parent)], check=True)

    def wait_for(*wanted):
        deadline, screen = time.monotonic() + 300, ""
        while not all(words in screen for words in wanted) and time.monotonic() < deadline:
            time.sleep(0.1)
            captured = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True)
            screen = captured.stdout
        assert all(words in screen for words in wanted), screen

    try:
        wait_for(f"ID: {name}", "State: Finished", "fig2_mnist_noise-smoke", "distance/test/")
        subprocess.run([*tmux, "send-keys", "/"], check=True)
        wait_for("Filter")
        subprocess.run([*tmux, "send-keys", "margin/loss", "Enter"], check=True)
        wait_for("margin/loss/conv1", "margin/loss/output")
    finally:
        subprocess.run([*tmux, "kill-server"])
