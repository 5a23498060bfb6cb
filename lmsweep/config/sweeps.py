"""A file of sweeps/ at a scale, expanded without Hydra's command line: which runs it asks for."""

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from lmsweep.config.grid import GridConfig, expand, parse_grid
from lmsweep.config.groups import TrackingConfig
from lmsweep.config.hydra import Composer, as_dict, composed_value, config_folder
from lmsweep.config.run import Request, RunConfig, check_sweepable, split
from lmsweep.errors import ConfigError


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, what the scale says about its grid, and what is to be drawn."""

    name: str
    scale: str
    runs: Mapping[str, RunConfig]  # by id
    figure: dict[str, Any]
    grid: GridConfig
    overrides: tuple[str, ...] = ()
    request: Request = field(default_factory=Request)
    lines: tuple[tuple[str, ...], ...] = ()  # the command line of every run
    launcher: Mapping[str, Any] = field(default_factory=dict)  # hydra.launcher, as it was composed

    @property
    def label(self) -> str:
        """The scale, with a hash of the overrides: their figure must not pass for the real one."""
        if not self.overrides:
            return self.scale
        digest = hashlib.sha256("\n".join(self.overrides).encode()).hexdigest()[:6]
        return f"{self.scale}-{digest}"

    @property
    def tracking(self) -> TrackingConfig:
        """Where runs, evaluations and the figure are mirrored to."""
        return next(iter(self.runs.values())).tracking

    @property
    def outputs(self) -> Path:
        """The folder of the store."""
        return Path(next(iter(self.runs.values())).outputs)

    @property
    def drawn(self) -> Path:
        """Where its figure is, without a suffix."""
        return self.outputs / "figures" / self.label / self.name

    @property
    def command(self) -> str:
        """How to make its figure."""
        if not self.overrides:
            return f"make reproduce-figure FIG={self.name} SCALE={self.scale}"
        return shlex.join(
            ["python", "-m", "lmsweep", "reproduce", self.name, *self.overrides, "--scale", self.scale]
        )


def sweep_folder() -> Path:
    """Where the sweeps are."""
    return Path(config_folder()) / "sweep"


@cache
def sweep_names() -> tuple[str, ...]:
    """Every sweep there is, figures in the paper's order."""
    names = [path.stem for path in sweep_folder().glob("*.yaml")]
    return tuple(sorted(names, key=lambda name: (_number(name), name)))


@cache
def scales() -> tuple[str, ...]:
    """Every scale of every family of data: `cifar/laptop`, `cifar/paper`, ..."""
    folder = Path(config_folder()) / "scale"
    return tuple(sorted(f"{path.parent.name}/{path.stem}" for path in folder.glob("*/*.yaml")))


def with_full_scale(arguments: Sequence[str]) -> list[str]:
    """Write `scale=laptop` as Hydra knows it, `scale=mnist/laptop`, where a sweep says of which data."""
    given = {key: value for key, _, value in (word.partition("=") for word in arguments)}
    scale, sweep = given.get("scale", "null"), given.get("sweep", "null")
    if scale == "null":
        return list(arguments)
    if "/" in scale or sweep == "null":
        _check("scale", scale, scales())
        return list(arguments)
    family = _family(sweep)
    _check(
        "scale",
        scale,
        [name for folder, _, name in (one.partition("/") for one in scales()) if folder == family],
    )
    return [f"scale={family}/{scale}" if word == f"scale={scale}" else word for word in arguments]


def _family(sweep: str) -> str:
    """The family of scales that a sweep chooses from: `mnist` for `override /scale: mnist/smoke`."""
    _check("sweep", sweep, sweep_names())
    path = sweep_folder() / f"{sweep}.yaml"
    for entry in yaml.safe_load(path.read_text()).get("defaults", []):
        if isinstance(entry, dict) and "override /scale" in entry:
            return str(entry["override /scale"]).partition("/")[0]
    raise ConfigError(
        f"sweep={sweep} has no scale: add `override /scale: NAME` to the defaults of {path}, with one of "
        f"{', '.join(scales())}."
    )


def _check(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{what}={value} is not allowed: it must be one of {', '.join(allowed)}.")


def read_sweep(name: str, scale: str, overrides: Sequence[str] = ()) -> Sweep:
    """Expand a sweep; `overrides` are as on the command line."""
    _check("figure", name, sweep_names())
    arguments = with_full_scale([f"sweep={name}", f"scale={scale}", *overrides])
    with initialize_config_dir(config_folder(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", arguments, RunMode.MULTIRUN)
        sweeper = as_dict(master.hydra.sweeper)
        value = partial(composed_value, master)
        parser = OverridesParser.create(loader)
        # What is for Hydra itself, such as the launcher, or for the picture, is no part of a job.
        of_jobs = [word for word in arguments if not word.lstrip("+~").startswith(("hydra", "figure."))]
        jobs = expand(sweeper["params"], sweeper["rules"], of_jobs, parser, value)
        composer = Composer(loader, master, without=("figure",))
        asked = [split(composer.compose(job)) for job in jobs]
        figure, launcher = as_dict(master.figure), as_dict(master.hydra.launcher)
        grid = parse_grid(as_dict(master.grid) if "grid" in master else {})
    # Cross-entropy has no norm, so that its jobs for all norms are one run: the first job stands for all.
    runs: dict[str, RunConfig] = {}
    lines: list[tuple[str, ...]] = []
    for job, (config, _) in zip(jobs, asked, strict=True):
        check_sweepable(config)
        if config.id not in runs:
            runs[config.id] = config
            lines.append(tuple(job))
    # Keys about the store, the mirror and the launcher change nothing about the figure.
    apart = (
        rf"[+~]*({'|'.join((*Request.model_fields, 'tracking', 'outputs', 'hydra', 'grid[.]keep'))})([=./]|$)"
    )
    changes = tuple(o for o in overrides if not re.match(apart, o))
    return Sweep(name, scale, runs, figure, grid, changes, asked[0][1], tuple(lines), launcher)


def _number(name: str) -> float:
    digits = "".join(c for c in name.removeprefix("fig").partition("_")[0] if c.isdigit())
    return float(digits) if digits else float("inf")
