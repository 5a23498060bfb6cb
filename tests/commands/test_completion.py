"""Completion in a real bash, by what Hydra installs there: keys, options of groups, and our words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What bash does when the user presses TAB: it sets these variables and calls the registered function.
PRESS_TAB = """
eval "$(lmsweep -sc install=bash)"
complete -p lmsweep > /dev/null || exit 1
COMP_LINE=$LINE COMP_POINT=${#LINE} words=($LINE)
COMP_CWORD=$(( ${#words[@]} - 1 ))
hydra_bash_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line):
    """What bash offers after `line`, and what the user would see of errors."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LINE": line}
    answer = subprocess.run(["bash", "-c", PRESS_TAB], env=environment, capture_output=True, text=True)
    return set(answer.stdout.split()), answer.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("lmsweep method=", {"method=xent", "method=margin"}),
        pytest.param("lmsweep -m sweep=fig2_mnist_noise margin.no", {"margin.norm="}, marks=pytest.mark.slow),
        ("lmsweep repr", {"reproduce"}),
        # Here the shell offers its own: file names.
        pytest.param("lmsweep reproduce fig2", set(), marks=pytest.mark.slow),
    ],
)
def test_a_tab_offers_what_can_come_next_and_prints_no_error(line, offered):
    found, error = completed(line)
    assert offered <= found
    assert bool(found) == bool(offered)
    assert error == ""
