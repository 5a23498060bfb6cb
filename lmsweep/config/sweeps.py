"""A file of sweeps/ at a scale, expanded without Hydra's command line: which runs it asks for."""

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf

from lmsweep.config.grid import expand
from lmsweep.config.hydra import Composer, config_folder
from lmsweep.config.request import Request, split
from lmsweep.config.run import RunConfig, TrackingConfig
from lmsweep.errors import ConfigError


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, what the scale says about its grid, and what is to be drawn."""

    name: str
    scale: str
    runs: Mapping[str, RunConfig]  # by id
    figure: dict[str, Any]
    grid: dict[str, Any]
    overrides: tuple[str, ...] = ()
    request: Request = field(default_factory=Request)
    jobs: tuple[tuple[str, ...], ...] = ()  # the command line of every job
    launcher: Mapping[str, Any] = field(default_factory=dict)  # hydra.launcher, as it was composed

    @property
    def label(self) -> str:
        """The scale; overrides make another of it, so that their figure does not pass for the real one."""
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
def scale_names() -> tuple[str, ...]:
    """Every scale there is."""
    return tuple(sorted(path.stem for path in (Path(config_folder()) / "scale").glob("*.yaml")))


def read_sweep(name: str, scale: str, overrides: Sequence[str] = ()) -> Sweep:
    """Expand a sweep; `overrides` are as on the command line."""
    for what, value, allowed in (("figure", name, sweep_names()), ("scale", scale, scale_names())):
        if value not in allowed:
            raise ConfigError(f"{what}={value} is not allowed: it must be one of {', '.join(allowed)}.")
    arguments = [f"sweep={name}", f"scale={scale}", *overrides]
    with initialize_config_dir(config_folder(), version_base="1.3"):
        loader = cast(ConfigLoaderImpl, GlobalHydra.instance().config_loader())
        master = loader.load_configuration("config", arguments, RunMode.MULTIRUN)
        sweeper = cast(dict[str, Any], OmegaConf.to_container(master.hydra.sweeper, resolve=True))
        parser = OverridesParser.create(loader)
        chosen = master.hydra.runtime.choices.method
        # What is for Hydra itself, such as the launcher, is no part of a job.
        of_jobs = [word for word in arguments if not word.lstrip("+~").startswith("hydra")]
        jobs = expand(sweeper["params"], sweeper["by_method"], of_jobs, parser, chosen)
        composer = Composer(loader, master, without=("figure",))
        asked = [split(composer.compose(job)) for job in jobs]
        runs = {config.id: config for config, _ in asked}
        parts = {
            key: cast(dict[str, Any], OmegaConf.to_container(OmegaConf.select(master, key), resolve=True))
            for key in ("figure", "grid", "hydra.launcher")
        }
    # How the store is treated, where it is, where it is mirrored to and what runs it, changes nothing about
    # the figure.
    apart = (*Request.model_fields, "tracking", "outputs", "hydra")
    changes = tuple(o for o in overrides if re.split(r"[=./]", o.lstrip("+~"))[0] not in apart)
    return Sweep(
        name,
        scale,
        runs,
        parts["figure"],
        parts["grid"],
        changes,
        asked[0][1],
        tuple(map(tuple, jobs)),
        parts["hydra.launcher"],
    )


def _number(name: str) -> float:
    digits = "".join(c for c in name.removeprefix("fig").partition("_")[0] if c.isdigit())
    return float(digits) if digits else float("inf")
