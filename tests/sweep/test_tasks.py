"""Many tasks, some of which fail."""

import os
import signal

from lmsweep.errors import UserError
from lmsweep.sweep.tasks import call_each, reason


def test_failures_stop_no_other_and_the_killed_get_another_chance(tmp_path):
    def killed_once():
        if not (tmp_path / "before").exists():
            (tmp_path / "before").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "second time"

    def broken():
        raise ArithmeticError("no")

    tasks = {"good": lambda: 1, "killed": killed_once, "broken": broken, "doomed": lambda: os._exit(5)}
    values, failures = call_each([{}, {}], tasks)
    assert values == {"good": 1, "killed": "second time"}
    assert failures == {
        "broken": "ArithmeticError: no",
        "doomed": "its process died 3 times, the last time by exit status 5",
    }


def test_a_sentence_for_the_user_stays_as_it_is():
    assert reason(UserError("do this")) == "do this"
