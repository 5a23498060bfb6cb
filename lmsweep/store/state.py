"""What has to be done about a run, given what the store says of it and what the user asked for."""

from collections.abc import Mapping
from typing import Any, Literal

from lmsweep.config.request import Request

Standing = Literal["cached", "failed", "missing"]


def standing(status: Mapping[str, Any], request: Request) -> Standing:
    """Whether a run with this status is there (`cached`), stays `failed`, or is to be trained (`missing`)."""
    if request.force:
        return "missing"
    if status.get("state") == "done":
        return "cached"
    if status.get("state") == "failed" and (request.retry == "none" or status.get("final")):
        return "failed"
    return "missing"
