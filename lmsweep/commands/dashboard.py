"""`lmsweep dashboard --sweep NAME` builds a W&B workspace and a report for a figure."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmsweep.commands.common import outputs_argument, parser_of, reported
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.errors import UserError
from lmsweep.files import write_atomically
from lmsweep.tracking.card import sweep_tag

if TYPE_CHECKING:
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    from lmsweep.figures.record import Record

SAVED = "dashboards.json"  # in <outputs>/wandb: which workspace and report belong to a sweep
# Keys whose values W&B's library draws at random; a specification numbers them.
RANDOM = ("id", "__id__", "ref", "runSetId", "viewId")


def specification(workspace: "ws.Workspace", report: "wr.Report") -> dict[str, Any]:
    """Both as W&B stores them, the same in every call."""
    common: dict[str, Any] = {"by_alias": True, "exclude_none": True, "mode": "json"}
    models = {"workspace": workspace._to_model(), "report": report._to_model()}
    return {name: numbered(model.model_dump(**common), name, {}) for name, model in models.items()}


def numbered(value: Any, name: str, seen: dict[str, str]) -> Any:
    """A copy in which values that were drawn at random are called name-1, name-2, ..."""
    if isinstance(value, list):
        return [numbered(item, name, seen) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: seen.setdefault(item, f"{name}-{len(seen) + 1}")
        if key in RANDOM and isinstance(item, str) and item
        else numbered(item, name, seen)
        for key, item in value.items()
    }


def drawn(sweep: Sweep) -> "Record | None":
    """What the figure's JSON says, when it has been drawn."""
    from lmsweep.figures.record import read_record

    path = sweep.drawn.with_suffix(".json")
    return read_record(path) if path.exists() else None


def save(workspace: "ws.Workspace", report: "wr.Report", key: str, outputs: Path) -> list[str]:
    """Write both to W&B, in the place of those of an earlier call; return their addresses."""
    path = outputs / "wandb" / SAVED
    saved: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    known = saved.get(key, {})
    workspace._internal_name, workspace._internal_id = known.get("workspace", ("", ""))
    report.id = known.get("report", "")
    try:
        workspace.save()
        report.save()
    except Exception as error:  # the library raises whatever its HTTP client, W&B's API and its models do
        raise UserError(
            f"W&B did not take the dashboard of {key} ({type(error).__name__}: {error}); `wandb login` or "
            "WANDB_API_KEY names an account, --entity and --project a place, --dry-run needs neither."
        ) from error
    saved[key] = {"workspace": [workspace._internal_name, workspace._internal_id], "report": report.id}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(saved, indent=1) + "\n")
    return [workspace.url, report.url]


@reported()
def dashboard_command(arguments: Sequence[str] | None = None) -> None:
    """Build a W&B workspace and a report for a figure."""
    from lmsweep.tracking.dashboard import build  # imports W&B's libraries, which other commands do not need

    parser = parser_of(dashboard_command, scale="smoke")
    parser.add_argument("--sweep", required=True, help="a file of sweeps/")
    parser.add_argument("--project", default="lmsweep", help="as tracking.project (default lmsweep)")
    parser.add_argument("--entity", default=None, help="as tracking.entity (default: the account's)")
    rehearse = "print the specification as JSON, and save nothing"
    parser.add_argument("--dry-run", action="store_true", help=rehearse)
    outputs_argument(parser)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="what the sweep was called with")
    options = parser.parse_intermixed_args(arguments)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    overrides = [*options.overrides, f"outputs={options.outputs}"]
    sweep = read_sweep(options.sweep, options.scale, overrides)
    entity = options.entity or ("" if options.dry_run else _default_entity())
    workspace, report = build(sweep, entity, options.project, drawn(sweep))
    if options.dry_run:
        print(json.dumps(specification(workspace, report), indent=1, sort_keys=True))
        return
    key = f"{options.project}/{sweep_tag(sweep.name, sweep.label)}"
    print(*save(workspace, report, key, options.outputs), sep="\n", flush=True)


def _default_entity() -> str:
    import wandb

    try:
        return str(wandb.Api().default_entity)
    except (wandb.errors.Error, OSError) as error:
        raise UserError(
            f"W&B does not name your account ({error}); use `wandb login`, or give --entity or --dry-run."
        ) from error
