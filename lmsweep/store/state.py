"""What has to be done about a run, given what the store says of it and what the user asked for."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from lmsweep.config.fields import Flag, Node

Standing = Literal["cached", "failed", "missing"]


class Request(Node):
    """How a command treats what the store has already. These keys are about the call, not about a run."""

    retry: Annotated[Literal["failed", "none"], Field(description="failed or none")] = "failed"
    force: Flag = False
    dry_run: Flag = False


def standing(status: Mapping[str, Any], request: Request) -> Standing:
    """Whether a run with this status is there (`cached`), stays `failed`, or is to be trained (`missing`)."""
    if request.force:
        return "missing"
    if status.get("state") == "done":
        return "cached"
    if status.get("state") == "failed" and (request.retry == "none" or status.get("final")):
        return "failed"
    return "missing"
