"""The words about W&B: `lmsweep dashboard`, `sync`, `wandb-sweep` and `wandb-agent`.

`dashboard` builds a workspace and a report for a figure. `sync` uploads what was recorded and is not there
yet, each run once: every file holds its whole run, so of several files of a run (one per attempt) only the
newest counts. W&B marks beside the file what was uploaded; a call that was stopped, or met a server that
broke, is repeated.

`wandb-sweep` writes a file of sweeps/ as a W&B sweep, whose agents call `wandb-agent`. So runs are kept in
our store under our ids: what the store has is not trained again, and figures are drawn as after any other
sweep.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lmsweep.commands import parser_of, reported
from lmsweep.commands.run import run_command
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.errors import UserError
from lmsweep.files import write_atomically
from lmsweep.store.sweeps import record_sweep
from lmsweep.tracking.tracker import sweep_tag
from lmsweep.tracking.upload import FAILED, check_account, is_uploaded, upload
from lmsweep.tracking.wandb_run import CARD, LOCK

if TYPE_CHECKING:
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

Keys = Mapping[str, str]  # what one run changes
CHOICE = "choice"  # a key that stands for several others
SAVED = "dashboards.json"  # in <outputs>/wandb: which workspace and report belong to a sweep
# Keys whose values W&B's library draws at random; a specification numbers them.
RANDOM = ("id", "__id__", "ref", "runSetId", "viewId")
AT_ONCE = 100  # folders per call of W&B's uploader, because a command line has an end


def sweep_config(sweep: Sweep, tracking: Sequence[str], project: str, entity: str | None) -> dict[str, Any]:
    """A W&B sweep whose grid has exactly our runs."""
    runs = [dict(word.split("=", 1) for word in line) for line in sweep.lines]
    fixed, axes = split_runs(runs)
    return {
        "name": sweep_tag(sweep.name, sweep.label),
        "project": project,
        **({"entity": entity} if entity else {}),
        "program": "lmsweep",
        "method": "grid",
        "metric": {"name": "val_accuracy", "goal": "maximize"},
        "parameters": {key: {"values": [_typed(v) for v in values]} for key, values in axes.items()},
        "command": [
            *("${env}", "python", "-m", "lmsweep", "wandb-agent"),
            *(f"{key}={value}" for key, value in fixed.items()),
            *tracking,
            "${args_no_hyphens}",
        ],
    }


def split_runs(runs: Sequence[Keys]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """What all runs share, and the axes whose product gives the rest.

    A key is an axis when all its values meet all that there is of the other keys. Keys that depend on each
    other, such as a gamma that only margins have, become one axis, `choice`, whose values spell them out.
    """
    keys = list(dict.fromkeys(key for run in runs for key in run))
    count, free = len(_written(runs, keys)), {}
    for key in (key for key in keys if all(key in run for run in runs)):
        values = list(dict.fromkeys(run[key] for run in runs))
        if len(values) * len(_written(runs, [other for other in keys if other != key])) == count:
            free[key] = values
    own = [key for key in keys if key not in free]
    fixed = {key: values[0] for key, values in free.items() if len(values) == 1}
    axes = {key: values for key, values in free.items() if key not in fixed}
    return fixed, {**({CHOICE: _written(runs, own)} if own else {}), **axes}


def _written(runs: Sequence[Keys], keys: Sequence[str]) -> list[str]:
    """These keys of the runs as words, each combination once."""
    lines = (" ".join(f"{key}={run[key]}" for key in keys if key in run) for run in runs)
    return list(dict.fromkeys(lines))


def _typed(value: str) -> Any:
    """A number as a number, so that W&B draws it on a scale."""
    number = yaml.safe_load(value)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else value


@reported()
def wandb_sweep_command(arguments: Sequence[str] | None = None) -> None:
    """Write a W&B sweep with the runs of a file of sweeps/."""
    parser = parser_of(wandb_sweep_command, scale="smoke", outputs=True)
    parser.add_argument("sweep", help="a file of sweeps/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as after lmsweep -m")
    parser.add_argument("--project", default="lmsweep", help="where the sweep is to be (default lmsweep)")
    parser.add_argument("--entity", default=None, help="a user or team (default: the account's)")
    options = parser.parse_intermixed_args(arguments)
    outputs = f"outputs={options.outputs.resolve()}"
    sweep = read_sweep(options.sweep, options.scale, [*options.overrides, outputs])
    # Here, because agents do not know of the sweep, whose tag their runs have.
    record_sweep(sweep.outputs, sweep.runs, sweep.name, sweep.label)
    tracking = ["tracking=wandb", "tracking.mode=online", f"tracking.project={options.project}"]
    tracking += [f"tracking.entity={options.entity}"] if options.entity else []
    config = sweep_config(sweep, tracking, options.project, options.entity)
    print(f"# The {len(sweep.runs)} runs of: lmsweep -m sweep={sweep.name} scale={sweep.scale}")
    print("# wandb sweep THIS_FILE makes the sweep; wandb agent ID, wherever this store is, runs it.")
    print(yaml.safe_dump(config, sort_keys=False, width=110), end="", flush=True)


def spelled_out(words: Iterable[str]) -> list[str]:
    """The arguments with every choice replaced by the keys in it."""
    found: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        found += value.split() if key == CHOICE else [word]
    return found


def wandb_agent_command() -> None:
    """`lmsweep`, but for the key `choice`, which stands for the keys that it lists.

    W&B's grids know no axes that depend on others, such as a gamma that only margins have.
    """
    sys.argv = [sys.argv[0], *spelled_out(sys.argv[1:])]
    run_command()


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
    # These import pandas and W&B's libraries, which `sync` does not need.
    from lmsweep.figures.record import read_record
    from lmsweep.tracking.dashboard import build

    parser = parser_of(dashboard_command, scale="smoke", outputs=True)
    parser.add_argument("--sweep", required=True, help="a file of sweeps/")
    parser.add_argument("--project", default="lmsweep", help="as tracking.project (default lmsweep)")
    parser.add_argument("--entity", default=None, help="as tracking.entity (default: the account's)")
    rehearse = "print the specification as JSON, and save nothing"
    parser.add_argument("--dry-run", action="store_true", help=rehearse)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="what the sweep was called with")
    options = parser.parse_intermixed_args(arguments)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    overrides = [*options.overrides, f"outputs={options.outputs}"]
    sweep = read_sweep(options.sweep, options.scale, overrides)
    entity = options.entity or ("" if options.dry_run else _default_entity())
    path = sweep.drawn.with_suffix(".json")
    record = read_record(path) if path.exists() else None  # None before the figure is drawn
    workspace, report = build(sweep, entity, options.project, record)
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


@dataclass
class Recorded:
    """The newest folder of every W&B run, by what is to be done about it."""

    uploaded: list[Path] = field(default_factory=list)
    waiting: list[Path] = field(default_factory=list)
    busy: list[Path] = field(default_factory=list)  # being written or uploaded by another process


def look(folder: Path) -> Recorded:
    """What there is below <outputs>/wandb."""
    # Folders are named by the time, and numbered within a second; files by the id.
    newest = {file.name: file.parent for file in sorted(folder.glob("offline-run-*/run-*.wandb"))}
    found = Recorded()
    for path in newest.values():
        if is_uploaded(path):
            found.uploaded.append(path)
        else:
            with _locked([path]) as mine:
                (found.waiting if mine else found.busy).append(path)
    return found


def sync(outputs: Path, *, stall: float, dry_run: bool = False, artifacts: bool = True) -> str:
    """Upload, and say in a sentence what happened; UserError when something is left.

    `artifacts` are tables and checkpoints, which W&B looks for where they were recorded.
    """
    folder = outputs / "wandb"
    found = look(folder)
    rest = f"{len(found.uploaded)} were there already"
    if found.busy:
        rest += f", {len(found.busy)} are still being written"
    if dry_run or not found.waiting:
        return f"{len(found.waiting)} runs to upload from {folder}; {rest}."
    if artifacts:
        _check_staging(found.waiting, folder)
    check_account()
    for start in range(0, len(found.waiting), AT_ONCE):
        with _locked(found.waiting[start : start + AT_ONCE]) as mine:
            if mine and not _upload(mine, stall):
                break
    left = [path for path in found.waiting if not is_uploaded(path)]
    done = len(found.waiting) - len(left)
    if left:
        raise UserError(
            f"W&B took {done} of {len(found.waiting)} runs (why: above); `wandb login` or WANDB_API_KEY "
            "names an account, WANDB_BASE_URL another server; the same command goes on with the others."
        )
    (folder / FAILED).unlink(missing_ok=True)
    return f"{done} runs uploaded from {folder}; {rest}."


def _check_staging(folders: Sequence[Path], here: Path) -> None:
    """Refuse to lose artifacts: W&B's uploader leaves out what it does not find, and calls that complete."""
    for folder in folders:
        staging = Path(json.loads((folder / CARD).read_bytes())["staging"])
        if not staging.exists():
            raise UserError(
                f"{folder.name} was recorded in {staging}, where W&B looks for its tables and checkpoints: "
                f"ln -s {here.resolve()} {staging} puts it right, --without-artifacts leaves them out."
            )


def _upload(folders: Sequence[Path], stall: float) -> bool:
    """Whether all got through; W&B's uploader is ended when it gets none through for `stall` seconds."""
    done, since = 0, time.monotonic()

    def wait(seconds: float) -> bool:
        nonlocal done, since
        time.sleep(seconds)
        now = sum(map(is_uploaded, folders))
        if now > done:
            done, since = now, time.monotonic()
        elif time.monotonic() - since > stall:
            print(f"Nothing got through for {stall:g} s.", file=sys.stderr, flush=True)
            return False
        return True

    return upload(folders, "--yes", wait)


@contextmanager
def _locked(folders: Sequence[Path]) -> Iterator[list[Path]]:
    """Those of `folders` that nobody else is writing or uploading; nobody else can while this lasts."""
    mine = []
    with ExitStack() as locks:
        for folder in folders:
            lock = locks.enter_context((folder / LOCK).open("a"))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine.append(folder)
        yield mine


@reported()
def sync_command(arguments: Sequence[str] | None = None) -> None:
    """Upload to W&B what was recorded and is not there yet, each run once."""
    parser = parser_of(sync_command, outputs=True)
    patience = "give up when nothing gets through for so many seconds"
    parser.add_argument("--stall", type=float, default=600.0, help=patience)
    without = "though tables and checkpoints were moved away"
    parser.add_argument("--without-artifacts", action="store_false", dest="artifacts", help=without)
    parser.add_argument("--dry-run", action="store_true", help="only say how many there are")
    print(sync(**vars(parser.parse_args(arguments))), flush=True)
