"""What is done about a run, over all that a store can say and a user can ask for."""

import pytest

from lmsweep.config.request import Request
from lmsweep.store.state import standing

DONE, FAILED, DIVERGED = {"state": "done"}, {"state": "failed"}, {"state": "failed", "final": True}
UNFINISHED = ({}, {"state": "pending"}, {"state": "running"})


@pytest.mark.parametrize(
    ("status", "request_", "expected"),
    [
        (DONE, {}, "cached"),
        (DONE, {"retry": "none"}, "cached"),
        (DONE, {"force": True}, "missing"),
        (FAILED, {}, "missing"),
        (FAILED, {"retry": "none"}, "failed"),
        (FAILED, {"retry": "none", "force": True}, "missing"),
        (DIVERGED, {}, "failed"),
        (DIVERGED, {"force": True}, "missing"),
        *[(status, {"retry": "none"}, "missing") for status in UNFINISHED],
    ],
)
def test_standing(status, request_, expected):
    assert standing(status, Request(**request_)) == expected
