"""From a file of sweeps/ at a scale to its runs: axes and rules expanded without Hydra's command line."""

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from pydantic import Field

from lmsweep.config.fields import CountOrNull, Flag, Fraction, Node, Whole, checked
from lmsweep.config.groups import TrackingConfig
from lmsweep.config.hydra import Composer, as_dict, composed_value, config_folder, plain, product
from lmsweep.config.run import Request, RunConfig, check_sweepable, split
from lmsweep.errors import ConfigError

Point = list[str]  # the overrides that make one run of a grid
Axes = Mapping[str, object]
Mapped = Annotated[dict[str, Any], Field(min_length=1)]
Table = dict[str | int | float, Any] | None
Overrides = Annotated[tuple[str, ...], Field(strict=False)]  # a list of YAML becomes a tuple

RULES = "hydra.sweeper.rules"


class Rule(Node):
    """A rule of `hydra.sweeper.rules`: further axes for the points that have certain values.

    Methods have different hyperparameters and different good values of the same one. `when` maps keys to the
    value, or to the list of values, that a point must have: that of its axis, else the one that the sweep
    is composed with; a group such as `method` has the name of its option. `axes` are as in
    `hydra.sweeper.params` and replace axes of the same key; null takes an axis away.
    """

    when: Annotated[Mapped, Field(description="a mapping from keys to values or lists of values")]
    axes: Annotated[Mapped, Field(description="a mapping from keys to values, as in params")]

    def applies(self, values: Mapping[str, object]) -> bool:
        """Whether a point with these values, as far as they are known, is one of the rule's."""
        return all(
            key in values
            and plain(values[key]) in map(plain, wanted if isinstance(wanted, list) else [wanted])
            for key, wanted in self.when.items()
        )


class NoiseConfig(Node):
    """`grid.noise`: how the figures over label noise differ from the others of their scale."""

    fraction: Fraction
    same_data: Flag
    weight: Annotated[float | None, Field(gt=0, description="a value of margin.weight")] = None
    val_every: CountOrNull = None
    width: Annotated[float | None, Field(gt=0, description="a value of model.width")] = None
    steps: CountOrNull = None  # trainer.max_steps of the figures over noise
    # trainer.max_steps of figX_selection: enough to learn the wrong labels by heart
    long_steps: CountOrNull = None


class StagesConfig(Node):
    """`grid.stages`: settings are compared on pilot seeds, and only the chosen ones are trained to report."""

    pilot_seeds: Annotated[
        tuple[Whole, ...],
        Field(
            strict=False, min_length=1, description="a list of whole numbers >= 0, of which none is a seed"
        ),
    ]


class GridConfig(Node):
    """`grid`: what a scale tells the sweeps and the figures that use it; no run knows of it."""

    same_data: Flag = False  # the paper's data, so that its values can be compared
    evaluation: Annotated[Overrides, Field(description="a list of overrides of conf/evaluation.yaml")] = ()
    audit: Annotated[Overrides, Field(description="a list of overrides of conf/audit.yaml")] = ()
    gammas: Annotated[Table, Field(description="a mapping from norms or layers to margin.gamma")] = None
    weights: Annotated[Table, Field(description="a mapping from norms to margin.weight")] = None
    fractions: Annotated[str | None, Field(description="values of data.fraction, such as 1,0.1")] = None
    # The fraction that is 68 images.
    few: Annotated[float | None, Field(gt=0, le=1, description="a number in (0, 1], or null")] = None
    noise: NoiseConfig | None = None
    # Whose checkpoints stay when the figure is drawn: of all runs, of those that it shows, or of none.
    # Other figures keep what they show. What an evaluation needs later is trained again.
    keep: Literal["all", "selected", "none"] = "all"
    stages: StagesConfig | None = None  # null: every setting is trained on every seed
    # Successive halving: with 3, pilot runs pause after 1/9 and 1/3 of their steps, and of each cell only the
    # best third goes on. null: all pilot runs are trained to their end.
    halving: Annotated[int | None, Field(ge=2, description="a whole number >= 2, or null")] = None
    exact_steps: CountOrNull = None  # trainer.max_steps of figX_exact
    methods_steps: CountOrNull = None  # trainer.max_steps of figX_methods
    gamma_steps: CountOrNull = None  # trainer.max_steps of figX_gamma
    measure_every: CountOrNull = None  # telemetry.every of fig12_cifar_distance


def parse_grid(grid: Mapping[str, Any]) -> GridConfig:
    """Check what a scale says; ConfigError with one sentence about the first thing wrong."""
    return checked(GridConfig, grid, "grid")


def expand(
    params: Axes,
    rules: Mapping[str, Mapping[str, Any]],
    arguments: Sequence[str],
    parser: OverridesParser,
    composed: Callable[[str], object],
) -> list[Point]:
    """The product of all axes, one list of overrides per point.

    `params` are the axes of every point and `rules` add to them, later ones last. What `arguments` say, on
    the command line, replaces both. `composed` gives the value of a key that is no axis.
    """
    read = [checked(Rule, rule, f"{RULES}.{name}") for name, rule in rules.items()]
    said: dict[str, str] = {}
    additions: list[str] = []  # words such as +key=1 that a later word key=2,3 needs, to have a key to change
    for told, text in zip(parser.parse_overrides(list(arguments)), arguments, strict=True):
        earlier = said.get(told.key_or_group, "")
        additions += [earlier] if earlier.startswith("+") else []
        said[told.key_or_group] = text

    def axes(values: Mapping[str, object]) -> dict[str, str]:
        found = dict(params)
        for rule in read:
            if rule.applies(values):
                found |= rule.axes
        return {key: f"{key}={value}" for key, value in found.items() if value is not None} | said

    # Each step settles one key that rules look at; all rules about its axis are decided by then.
    settled: list[tuple[Point, dict[str, object]]] = [([], {})]
    for key in _conditions(read):
        further: list[tuple[Point, dict[str, object]]] = []
        for words, values in settled:
            word = axes(values).get(key)
            if word is None:
                further.append((words, {**values, key: composed(key)}))
                continue
            for (choice,) in product([word], parser):
                value = parser.parse_overrides([choice])[0].value()
                further.append(([*words, choice], {**values, key: value}))
        settled = further
    points: list[Point] = []
    for words, values in settled:
        free = [word for key, word in axes(values).items() if key not in values]
        points += product([*additions, *words, *free], parser)
    return points


def _conditions(rules: Sequence[Rule]) -> list[str]:
    """The keys that rules look at, each after the keys that decide about its axis."""
    decided_by: dict[str, set[str]] = {}
    for rule in rules:
        for key in rule.when:
            decided_by.setdefault(key, set())
        for key in rule.axes:
            decided_by.setdefault(key, set()).update(rule.when)
    try:
        order = list(TopologicalSorter(decided_by).static_order())
    except CycleError as error:
        keys = " by ".join(error.args[1])
        raise ConfigError(
            f"{RULES} go round in a circle: they choose {keys}; take one of them out."
        ) from None
    looked_at = {key for rule in rules for key in rule.when}
    return [key for key in order if key in looked_at]


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
    return tuple(sorted(names, key=paper_order))


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
        "scale", scale, [one.removeprefix(f"{family}/") for one in scales() if one.startswith(f"{family}/")]
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


def paper_order(name: str) -> tuple[float, str]:
    """The number of a figure in the paper, and its name; figures of our own come last."""
    number = re.match(r"fig(\d+)", name)
    return (float(number[1]) if number else float("inf")), name
