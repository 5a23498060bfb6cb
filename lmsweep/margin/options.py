"""The options of the margin loss, each declared once: its type, default, allowed values and meaning.

`margin_distance`, `margin_loss`, `MarginLoss` and the schema of `margin` in the configuration take their
options from here. Nothing here imports torch, because commands that train nothing read the schema too.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, get_args, get_type_hints

F = TypeVar("F", bound=Callable[..., Any])
IN_THE_SIGNATURE = inspect.Parameter.empty  # the default of what can be given by position


class Allowed(NamedTuple):
    """What a value may be: in words that complete "it must be ...", and as a check.

    `read` returns the value in the form in which it is used, and raises ValueError or TypeError for others.
    """

    words: str
    read: Callable[[Any], Any]

    def or_none(self, meaning: str = "") -> "Allowed":
        """The same, or None."""
        words = f"{self.words}, or None{meaning and f' for {meaning}'}"
        return Allowed(words, lambda value: None if value is None else self.read(value))

    def check(self, name: str, value: Any) -> Any:
        """Return the value as it is used; ValueError says what is allowed."""
        try:
            return self.read(value)
        except (ValueError, TypeError):
            raise ValueError(f"{name}={value!r} is not allowed: it must be {self.words}") from None


def one_of(*choices: str) -> Allowed:
    """One of these words."""
    return Allowed(f"{', '.join(choices[:-1])} or {choices[-1]}", lambda value: choices[choices.index(value)])


def _only(value: Any, is_allowed: bool) -> Any:
    if not is_allowed:
        raise ValueError
    return value


def _number(value: Any, allowed: Callable[[Any], bool]) -> float:
    # By comparison and not by class, so that numbers of numpy are numbers too.
    return float(_only(value, not isinstance(value, bool | str) and allowed(value)))


def _positives(value: Any) -> list[float]:
    return [POSITIVE.read(v) for v in _only(value, not isinstance(value, str) and len(value) > 0)]


def _count(value: Any) -> int:
    return int(_only(value, not isinstance(value, bool) and int(value) == value and value >= 1))


def _layers(value: Any) -> Any:
    names = [value] if isinstance(value, str) else list(value)
    return _only(value, bool(names) and all(isinstance(name, str) and name for name in names))


NORM = Allowed("a number >= 1, or inf", lambda p: math.inf if p == "inf" else _number(p, lambda v: v >= 1))
POSITIVE = Allowed("a number > 0", lambda value: _number(value, lambda v: 0 < v < math.inf))
POSITIVES = Allowed("a list of numbers > 0, one per layer", _positives)
GAMMA = Allowed(
    "a number > 0, or a list of them, one per layer",
    lambda value: _positives(value) if isinstance(value, Sequence) else POSITIVE.read(value),
)
COUNT = Allowed("a whole number >= 1", _count)
FLAG = Allowed("true or false", lambda value: _only(value, isinstance(value, bool)))
LAYERS = Allowed(
    "input, output, hidden, all, everything, even:N, a module's name or a glob, or a list", _layers
)


class Option(NamedTuple):
    """One option; a Literal type says itself what is allowed."""

    default: Any
    meaning: str
    allowed: Allowed | None = None


class DistanceOptions(TypedDict, total=False):
    """How distances to class boundaries are measured."""

    norm: Annotated[float | str, Option(2.0, "the norm of distances; gradients have its dual norm", NORM)]
    top_k: Annotated[
        int | None,
        Option(
            None,
            "how many other classes to compare with, best scored first; each costs one backward pass",
            COUNT.or_none("every class"),
        ),
    ]
    epsilon: Annotated[float, Option(1e-6, "added to the gradient norm", POSITIVE)]
    exact: Annotated[
        bool,
        Option(False, "differentiate through the gradient norm as well, which is a constant otherwise", FLAG),
    ]
    score: Annotated[Literal["logit", "softmax"], Option("logit", "what a class boundary is a tie of")]
    layer_weights: Annotated[
        Sequence[float] | None,
        Option(None, "each divides the gradient norm of its layer", POSITIVES.or_none()),
    ]


class HingeOptions(DistanceOptions, total=False):
    """How distances become a loss."""

    gamma: Annotated[
        float | Sequence[float], Option(1.0, "the distance asked for, in the unit of the layer", GAMMA)
    ]
    aggregation: Annotated[Literal["max", "sum"], Option("max", "over classes")]
    clip: Annotated[
        float | None,
        Option(None, "the loss of a class is clipped to clip * gamma", POSITIVE.or_none("no clipping")),
    ]
    layer_reduction: Annotated[Literal["sum", "mean"], Option("sum", "over layers")]


class LossOptions(HingeOptions, total=False):
    """The options of `margin_loss`."""

    reduction: Annotated[Literal["mean", "sum", "none"], Option("mean", "over the batch")]


class CallbackOptions(HingeOptions, total=False):
    """The options of `MarginLoss` that are keywords only."""

    candidates: Annotated[
        Literal["score", "distance", "sampled"],
        Option(
            "score", "choose the top_k classes by score, by distance at the last linear layer, or at random"
        ),
    ]
    batch_norm: Annotated[
        Literal["batch", "per_sample"],
        Option("batch", "per_sample keeps gradients from leaking between samples in train-mode batch norm"),
    ]


class MarginOptions(CallbackOptions, total=False):
    """All options of `MarginLoss`."""

    layers: Annotated[str | Sequence[str], Option(IN_THE_SIGNATURE, "see `resolve_layers`", LAYERS)]
    weight: Annotated[float, Option(IN_THE_SIGNATURE, "of the margin loss in the total loss", POSITIVE)]


@functools.cache
def declared(options: Any) -> dict[str, tuple[Option, Allowed]]:
    """The options that one of the classes above declares or inherits, and what each may be."""
    found = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        kind, option = get_args(hint)
        found[name] = (option, option.allowed or one_of(*get_args(kind)))
    return found


def takes(options: Any) -> Callable[[F], F]:
    """Let a function that ends in `**options: Unpack[...]` find every option there, checked.

    What the caller leaves out comes with its default, an unknown keyword is a TypeError, and `help()` shows
    all options.
    """
    known = declared(options)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        names = [p.name for p in own]
        defaults = {name: option.default for name, (option, _) in known.items() if name not in names}

        def check(name: str, value: Any) -> Any:
            return known[name][1].check(name, value) if name in known else value

        @functools.wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            for name in given:
                if name not in names and name not in known:
                    raise TypeError(
                        f"{function.__qualname__}() got an unexpected keyword argument {name!r}: "
                        f"its options are {', '.join(defaults)}"
                    )
            places = [*names, *[""] * len(arguments)]  # too many arguments are for Python to refuse
            values = [check(name, value) for name, value in zip(places, arguments, strict=False)]
            return function(*values, **{k: check(k, v) for k, v in {**defaults, **given}.items()})

        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in defaults.items()
        ]
        checked.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        lines = [f"        {name}: {known[name][0].meaning}; {known[name][1].words}." for name in defaults]
        checked.__doc__ = "\n".join([function.__doc__ or "", "", "    Options:", *lines])
        return checked  # type: ignore[return-value]

    return decorate


def sample_size(options: Mapping[str, Any]) -> int:
    """How many classes to sample; ValueError for options that cannot go together with sampling."""
    top_k: int | None = options["top_k"]
    if top_k is None:
        raise ValueError("top_k=None is not allowed with sampled classes: give the number of classes to draw")
    if options["aggregation"] == "max":
        raise ValueError(
            "aggregation='max' is not allowed with sampled classes: the largest of a few terms does not "
            "estimate the largest of all; use aggregation='sum'"
        )
    return top_k


def distance_part(options: Mapping[str, Any]) -> Any:
    """Those of the options that say how distances are measured."""
    return {name: options[name] for name in declared(DistanceOptions)}
