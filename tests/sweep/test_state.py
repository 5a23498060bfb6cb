"""What is done about a run, over all that a store can say and a user can ask for."""

import pytest

from lmsweep.config.run import Request
from lmsweep.sweep.plan import state_for

DONE, FAILED, DIVERGED = {"state": "done"}, {"state": "failed"}, {"state": "failed", "final": True}
UNFINISHED = ({}, {"state": "pending"}, {"state": "running"})


@pytest.mark.parametrize(
    ("status", "request_", "expected"),
    [
        (DONE, {}, "done"),
        (DONE, {"retry": "none"}, "done"),
        (DONE, {"force": True}, "missing"),
        (FAILED, {}, "missing"),
        (FAILED, {"retry": "none"}, "failed"),
        (FAILED, {"retry": "none", "force": True}, "missing"),
        (DIVERGED, {}, "failed"),
        (DIVERGED, {"force": True}, "missing"),
        *[(status, {"retry": "none"}, "missing") for status in UNFINISHED],
    ],
)
def test_the_state_of_a_job(status, request_, expected):
    assert state_for(status, Request(**request_)) == expected
