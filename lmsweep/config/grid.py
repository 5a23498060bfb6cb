"""From the axes of a sweep to the overrides of its points, and what a scale tells the figures that use it."""

from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from pydantic import Field

from lmsweep.config.fields import CountOrNull, Flag, Fraction, Node, checked
from lmsweep.config.hydra import plain, product
from lmsweep.errors import ConfigError

Point = list[str]  # the overrides that make one run of a grid
Axes = Mapping[str, object]

RULES = "hydra.sweeper.rules"


class Rule(Node):
    """A rule of `hydra.sweeper.rules`: further axes for the points that have certain values.

    Methods have different hyperparameters and different good values of the same one. `when` maps keys to the
    value, or to the list of values, that a point must have: that of its axis, else the one that the sweep
    is composed with; a group such as `method` has the name of its option. `axes` are as in
    `hydra.sweeper.params` and replace axes of the same key; null takes an axis away.
    """

    when: Annotated[
        dict[str, Any], Field(min_length=1, description="a mapping from keys to values or lists of values")
    ]
    axes: Annotated[
        dict[str, Any], Field(min_length=1, description="a mapping from keys to values, as in params")
    ]

    def applies(self, values: Mapping[str, object]) -> bool:
        """Whether a point with these values, as far as they are known, is one of the rule's."""
        return all(key in values and _is_one_of(values[key], wanted) for key, wanted in self.when.items())


class NoiseConfig(Node):
    """`grid.noise`: how the figures over label noise differ from the others of their scale."""

    fraction: Fraction
    same_data: Flag
    weight: Annotated[float | None, Field(gt=0, description="a value of margin.weight")] = None
    val_every: CountOrNull = None
    steps: CountOrNull = None  # trainer.max_steps of the figures over noise
    # trainer.max_steps of figX_selection: enough to learn the wrong labels by heart
    long_steps: CountOrNull = None


class StagesConfig(Node):
    """`grid.stages`: settings are compared on pilot seeds, and only the chosen ones are trained to report."""

    pilot_seeds: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(
            strict=False, min_length=1, description="a list of whole numbers >= 0, of which none is a seed"
        ),
    ]


class GridConfig(Node):
    """`grid`: what a scale tells the sweeps and the figures that use it; no run knows of it."""

    same_data: Flag = False  # the paper's data, so that its values can be compared
    evaluation: Annotated[
        tuple[str, ...], Field(strict=False, description="a list of overrides of conf/evaluation.yaml")
    ] = ()
    audit: Annotated[
        tuple[str, ...], Field(strict=False, description="a list of overrides of conf/audit.yaml")
    ] = ()
    gammas: Annotated[
        dict[str | int | float, Any] | None,
        Field(description="a mapping from norms or layers to margin.gamma"),
    ] = None
    weights: Annotated[
        dict[str | int | float, Any] | None, Field(description="a mapping from norms to margin.weight")
    ] = None
    fractions: Annotated[str | None, Field(description="values of data.fraction, such as 1,0.1")] = None
    # The fraction that is 68 images.
    few: Annotated[float | None, Field(gt=0, le=1, description="a number in (0, 1], or null")] = None
    noise: NoiseConfig | None = None
    # Whose checkpoints stay when the figure is drawn: of all runs, of those that it shows, or of none.
    # Other figures keep what they show. What an evaluation needs later is trained again.
    keep: Annotated[Literal["all", "selected", "none"], Field(description="all, selected or none")] = "all"
    stages: StagesConfig | None = None  # null: every setting is trained on every seed
    # Successive halving: with 3, pilot runs pause after 1/9 and 1/3 of their steps, and of each cell only the
    # best third goes on. null: all pilot runs are trained to their end.
    halving: Annotated[int | None, Field(ge=2, description="a whole number >= 2, or null")] = None
    exact_steps: CountOrNull = None  # trainer.max_steps of figX_exact
    methods_steps: CountOrNull = None  # trainer.max_steps of figX_methods
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
    for told, text in _read(arguments, parser):
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
                ((override, _),) = _read([choice], parser)
                further.append(([*words, choice], {**values, key: override.value()}))
        settled = further
    points: list[Point] = []
    for words, values in settled:
        free = [word for key, word in axes(values).items() if key not in values]
        points += product([*additions, *words, *free], parser)
    return points


def _read(words: Sequence[str], parser: OverridesParser) -> list[tuple[Override, str]]:
    return list(zip(parser.parse_overrides(list(words)), words, strict=True))


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


def _is_one_of(value: object, wanted: object) -> bool:
    return plain(value) in [plain(one) for one in (wanted if isinstance(wanted, list) else [wanted])]
