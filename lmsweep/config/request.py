"""What a call wants done about its runs, beside what the runs are."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from lmsweep.config.explain import invalid_value
from lmsweep.config.fields import Flag, Node
from lmsweep.config.run import RunConfig, parse
from lmsweep.errors import ConfigError

# Keys of conf/config.yaml that describe a sweep and its picture; a run knows nothing of them.
OF_THE_SWEEP = ("figure", "grid")


class Request(Node):
    """How a command treats what the store has already. These keys are about the call, not about a run."""

    retry: Annotated[Literal["failed", "none"], Field(description="failed or none")] = "failed"
    force: Flag = False
    dry_run: Flag = False


def split(plain: Mapping[str, Any]) -> tuple[RunConfig, Request]:
    """Part a composed configuration into the run and what the call wants done about it."""
    keys = Request.model_fields.keys()
    try:
        request = Request.model_validate({key: plain[key] for key in keys if key in plain})
    except ValidationError as error:
        raise ConfigError(invalid_value(Request, error.errors()[0])) from None
    of_the_run = {key: value for key, value in plain.items() if key not in (*keys, *OF_THE_SWEEP)}
    return parse(of_the_run).with_content(), request
