"""From the axes of a sweep to the overrides of its jobs."""

import itertools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

Job = list[str]
Axes = Mapping[str, object]


def expand(
    params: Axes,
    by_method: Mapping[str, Axes],
    arguments: Sequence[str],
    parser: OverridesParser,
    method: str,
) -> list[Job]:
    """The product of all axes, one list of overrides per job.

    `params` are the axes of every method; `by_method` maps a method's name or glob to further axes, because
    methods have different hyperparameters (a margin has a gamma) and different good values of the same one.
    Where several globs fit, the later one wins. What is said in `arguments`, on the command line, replaces
    both. `method` is the method of jobs that do not name one.
    """
    said = {override.get_key_element() for override in parser.parse_overrides(list(arguments))}
    axis = [word for word in [*_written(params), *arguments] if word.startswith("method=")][-1:]
    jobs: list[Job] = []
    for choice in _product(axis, parser):
        chosen = choice[0].partition("=")[2] if choice else method
        axes = dict(params)
        for pattern, further in by_method.items():
            if fnmatchcase(chosen, pattern):
                axes |= further
        unsaid = {key: value for key, value in axes.items() if key not in said}
        jobs += _product([*_written(unsaid), *arguments, *choice], parser)
    return jobs


def _written(axes: Axes) -> list[str]:
    return [f"{key}={value}" for key, value in axes.items()]


def _product(words: list[str], parser: OverridesParser) -> list[Job]:
    if not words:
        return [[]]
    batches = BasicSweeper.split_arguments(parser.parse_overrides(words), None)
    return list(itertools.chain.from_iterable(batches))
