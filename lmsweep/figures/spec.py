"""The schema of `figure:` in sweeps/: what is drawn, and which statements of the paper it is held against.

Each description completes the sentence "it must be ..." in the error a user sees.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from lmsweep.config.fields import Name, Node, invalid_value
from lmsweep.config.hydra import config_folder
from lmsweep.errors import ConfigError
from lmsweep.figures.claims import KINDS, AnyClaim, Claim
from lmsweep.figures.statistics import methods_of

# A variant, such as xent@model.dropout=0@optimizer.lr=0.003, is a method whose runs have these values.
ACQUIRED = r"(\+(bald|random|max_entropy))?"
NAMES = "|".join(sorted(path.stem for path in Path(config_folder(), "method").glob("*.yaml")))
METHOD = rf"^({NAMES}|margin_l(inf|\d+(\.\d+)?)_[^\s@]+?)(\+(fgsm|pgd))?{ACQUIRED}(@[\w.]+=[^\s@]+)*$"
Unit = Annotated[Literal["none", "percent"], Field(description="none or percent")]
Method = Annotated[
    str, Field(pattern=METHOD, description="a method as runs name it: xent, margin_l2_all, xent+pgd, ...")
]
# Which weights of a run: the best on validation labels as they are, on true ones, or the last.
Checkpoint = Literal["best", "best_clean", "last"]
# A list whose items have a schema of their own; `_explain` says what is wrong with an item.
Parts = Field(description="a list of groups of keys")


class Axis(Node):
    """What `x` and `y` have in common."""

    label: Name
    unit: Unit = "none"
    attack: Annotated[str | None, Field(min_length=1, description="a name in attacks, or null")] = None

    @property
    def factor(self) -> float:
        """From a value to the number that is drawn."""
        return 100.0 if self.unit == "percent" else 1.0

    @property
    def with_unit(self) -> str:
        """What is written along the axis."""
        return f"{self.label} (%)" if self.unit == "percent" else self.label


class XAxis(Axis):
    """`x`: a key of the run, or the strength of an attack."""

    key: Annotated[str | None, Field(min_length=1, description="a key of a run, or null")] = None
    scale: Annotated[Literal["linear", "log"], Field(description="linear or log")] = "linear"


class YAxis(Axis):
    """`y`: a number of a run's results, or of an evaluation's."""

    metric: Name
    at: Annotated[float | None, Field(description="a strength of y.attack, or null")] = None


class Panel(Node):
    """One pair of axes; `checkpoint` says whose weights it shows, where not the figure's."""

    name: Annotated[str, Field(pattern=r"^\w+$", description="a name of letters, digits and underscores")]
    title: Name
    x: XAxis
    y: YAxis
    methods: Annotated[list[Method], Field(min_length=1, description="a list of methods as runs name them")]
    checkpoint: Annotated[Checkpoint | None, Field(description="best, best_clean, last or null")] = None
    # Where several keys of runs are the x of panels: the values that runs of this panel have of the others.
    where: Annotated[dict[str, float], Field(strict=False, description="a mapping from keys to numbers")] = (
        Field(default_factory=dict)
    )

    @property
    def one_place(self) -> bool:
        """Whether x is no key of runs, so that the same runs stand at every x."""
        return self.x.key in (None, "step")

    @property
    def attack(self) -> str | None:
        """The attack that the panel's points come from: a curve of it on x, or one strength of it on y."""
        return self.x.attack or self.y.attack


class AttackSpec(Node):
    """An evaluation of the selected runs."""

    overrides: Annotated[list[str], Field(description="a list of overrides of conf/evaluation.yaml")]


Point = Annotated[list[float], Field(min_length=2, max_length=2)]


class Reference(Node):
    """Published points of others."""

    panel: Name
    name: Name
    points: Annotated[list[Point], Field(min_length=1, description="a list of [x, y]")]
    note: Annotated[str, Field(description="where the points are from")] = ""


class FigureSpec(Node):
    """A figure."""

    name: Name
    title: Name
    paper: Annotated[str, Field(min_length=1, description="the figure's number in the paper")]
    question: Annotated[str, Field(min_length=1, description="one sentence")]
    kind: Annotated[
        Literal["curves", "methods", "regions", "distances"],
        Field(description="curves, methods, regions or distances"),
    ]
    selection: Annotated[Literal["best_validation", "all"], Field(description="best_validation or all")]
    checkpoint: Annotated[Checkpoint, Field(description="best, best_clean or last")] = "best"
    panels: Annotated[list[Panel], Parts] = Field(default_factory=list)
    attacks: Annotated[dict[str, AttackSpec], Field(description="a group of names with overrides")] = Field(
        default_factory=dict
    )
    # Whether the gradients of attacked methods are audited.
    audit: Annotated[bool, Field(description="true or false")] = False
    references: Annotated[list[Reference], Parts] = Field(default_factory=list)
    claims: Annotated[list[AnyClaim], Parts] = Field(default_factory=list)

    def panel(self, name: str) -> Panel:
        """The panel with this name."""
        return next(panel for panel in self.panels if panel.name == name)

    @property
    def attack_panels(self) -> tuple[str, ...]:
        """Panels over the strength of an attack: all strengths meet the same runs."""
        return tuple(panel.name for panel in self.panels if panel.x.attack)

    @cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        """Where each panel and method stands in the order of the figure."""
        pairs = ((panel.name, method) for panel in self.panels for method in panel.methods)
        return {pair: rank for rank, pair in enumerate(pairs)}

    @property
    def methods(self) -> list[str]:
        """Every method, in the order in which panels name them."""
        return list(dict.fromkeys(method for panel in self.panels for method in panel.methods))


# The parts of a figure with a schema of their own; each kind of claim has its own.
PARTS: dict[str, type[Node]] = {
    "panels": Panel,
    "attacks": AttackSpec,
    "references": Reference,
    "claims": Claim,
}


def parse_figure(config: Mapping[str, Any], file: str | Path) -> FigureSpec:
    """Check the `figure:` of a sweep; raise ConfigError with one sentence about the first thing wrong."""
    try:
        spec = FigureSpec.model_validate(config)
    except ValidationError as error:
        raise ConfigError(_explain(config, dict(error.errors()[0]), file)) from None
    problem = next(_problems(spec, Path(file).stem), None)
    if problem:
        raise ConfigError(f"{problem}; change it in {file}.")
    return spec


def _explain(config: Mapping[str, Any], error: dict[str, Any], file: str | Path) -> str:
    where, loc = f"in {file}", list(error["loc"])
    part, item = "figure", config
    schema: type[Node] = FigureSpec
    if len(loc) >= 2 and loc[0] in PARTS:
        group, place, *loc = loc
        part = f"figure.{group}[{place}]" if isinstance(place, int) else f"figure.{group}.{place}"
        item, schema = config[group][place], PARTS[group]
        if error["type"].startswith("union_tag"):
            kind = item.get("kind") if isinstance(item, Mapping) else item
            allowed = ", ".join(KINDS)
            return f"{part}.kind={kind} is not allowed: it must be one of {allowed}; change it {where}."
        if group == "claims":
            schema = KINDS[loc.pop(0)]
    if not loc:  # the part is no group at all
        return f"{part}={item} is not allowed: it must be a group of keys; change it {where}."
    sentence = f"{part}: {invalid_value(schema, {**error, 'loc': loc}, where)}"
    # The sentence about an unknown key lists the keys that there are, but not the place to change it.
    return sentence if where in sentence else f"{sentence.removesuffix('.')}; change it {where}."


def _problems(spec: FigureSpec, stem: str) -> Iterator[str]:
    """One sentence for each contradiction between keys that are valid by themselves."""
    if spec.name != stem:
        yield f"figure.name={spec.name} is not allowed: it must be the file's name, {stem}"
    if not spec.panels and spec.kind != "regions":
        yield f"figure.panels=[] is not allowed: a figure of kind {spec.kind} must have one or more"
    if spec.checkpoint == "best_clean" and (spec.attacks or spec.kind == "regions"):
        yield "figure.checkpoint=best_clean is not allowed with attacks or regions: it must be best or last"
    names = [panel.name for panel in spec.panels]
    yield from _repeated("figure.panels", "name", names)
    axes = [panel.x.key for panel in spec.panels if panel.x.key]
    for i, panel in enumerate(spec.panels):
        part = f"figure.panels[{i}]"
        for key in panel.where:
            if key not in axes:
                yield _not_one_of(f"{part}.where.{key}", axes)
        yield from _repeated(part, "methods", panel.methods)
        yield from _axis_problems(part, panel, spec.attacks)
    for i, reference in enumerate(spec.references):
        if reference.panel not in names:
            yield _not_one_of(f"figure.references[{i}].panel={reference.panel}", names)
    yield from _repeated("figure.claims", "id", [claim.id for claim in spec.claims])
    for claim in spec.claims:
        part = f"figure.claims: claim {claim.id}"
        for name, side in claim.uses():
            if name not in names:
                yield _not_one_of(f"{part}, panel={name}", names)
                return
            methods = spec.panel(name).methods
            for method in methods_of(side):
                if method not in methods:
                    yield _not_one_of(f"{part}, method {method} in panel {name}", methods)


def _axis_problems(part: str, panel: Panel, attacks: Mapping[str, AttackSpec]) -> Iterator[str]:
    x, y = panel.x, panel.y
    if panel.attack is not None and panel.checkpoint is not None:
        yield f"{part}.checkpoint={panel.checkpoint} is not allowed with an attack: it must be the figure's"
    if (y.attack is None) != (y.at is None):
        yield f"{part}.y is not allowed with attack={y.attack} and at={y.at}: it must have both or none"
    if x.attack is not None and y.attack is not None:
        yield f"{part}.y.attack={y.attack} is not allowed with x.attack: it must be null, or x.attack"
    if (x.key is None) == (x.attack is None):
        yield f"{part}.x is not allowed with key={x.key} and attack={x.attack}: it must have one of them"
    elif panel.attack is not None:
        axis = "x" if x.attack else "y"
        if panel.attack not in attacks:
            yield _not_one_of(f"{part}.{axis}.attack={panel.attack}", list(attacks))
        if y.metric != "accuracy":
            yield f"{part}.y.metric={y.metric} is not allowed with {axis}.attack: it must be accuracy"


def _repeated(part: str, key: str, values: Iterable[str]) -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            yield f"{part}: {key} {value} is there {count} times: it must be unique"


def _not_one_of(what: str, allowed: list[str]) -> str:
    return f"{what} is not allowed: it must be one of {', '.join(allowed) or '(there are none)'}"
