"""`lmsweep wandb-sweep` writes a file of sweeps/ as a W&B sweep, whose agents call `lmsweep wandb-agent`.

So runs are kept in our store under our ids: what the store has is not trained again, and figures are drawn as
after any other sweep.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from lmsweep.commands.common import outputs_argument, parser_of, reported
from lmsweep.commands.run import run_command
from lmsweep.config.sweeps import Sweep, read_sweep
from lmsweep.store.sweeps import record_sweep
from lmsweep.tracking.card import sweep_tag

Keys = Mapping[str, str]  # what one run changes
CHOICE = "choice"  # a key that stands for several others


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

    Keys that depend on the method make no product: they become one axis, `choice`, whose values spell out all
    of them.
    """
    keys = list(dict.fromkeys(key for run in runs for key in run))
    seen = {key: list(dict.fromkeys(run[key] for run in runs if key in run)) for key in keys}
    fixed = {key: seen[key][0] for key in keys if len(seen[key]) == 1 and all(key in run for run in runs)}
    varying = [key for key in keys if key not in fixed]
    own = [key for key in varying if _depends(key, runs)]
    free = [key for key in varying if key not in own]
    choices = list(dict.fromkeys(_written(run, own) for run in runs))
    axes = {**({CHOICE: choices} if own else {}), **{key: seen[key] for key in free}}
    # Every run once, and as many as the product has: then it is the product.
    if math.prod(map(len, axes.values())) != len({_written(run, varying) for run in runs}):
        axes = {CHOICE: list(dict.fromkeys(_written(run, varying) for run in runs))}
    return fixed, axes


def _depends(key: str, runs: Sequence[Keys]) -> bool:
    """Whether a key has other values for other methods; the method itself counts too."""
    by_method: dict[str | None, set[str | None]] = {}
    for run in runs:
        by_method.setdefault(run.get("method"), set()).add(run.get(key))
    return key == "method" or len(set(map(frozenset, by_method.values()))) > 1


def _written(run: Keys, keys: Sequence[str]) -> str:
    return " ".join(f"{key}={run[key]}" for key in keys if key in run)


def _typed(value: str) -> Any:
    """A number as a number, so that W&B draws it on a scale."""
    number = yaml.safe_load(value)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else value


@reported()
def wandb_sweep_command(arguments: Sequence[str] | None = None) -> None:
    """Write a W&B sweep with the runs of a file of sweeps/."""
    parser = parser_of(wandb_sweep_command, scale="smoke")
    parser.add_argument("sweep", help="a file of sweeps/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as after lmsweep -m")
    parser.add_argument("--project", default="lmsweep", help="where the sweep is to be (default lmsweep)")
    parser.add_argument("--entity", default=None, help="a user or team (default: the account's)")
    outputs_argument(parser)
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
