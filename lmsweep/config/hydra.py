"""How Hydra is asked. Its private parts are used in this file only, so that a new Hydra breaks one file."""

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from omegaconf import Container, DictConfig, OmegaConf, open_dict

from lmsweep.errors import ConfigError


def config_folder() -> str:
    """conf/ of this checkout, or the copy inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "conf"
    return str(installed if installed.is_dir() else package.parent / "conf")


def as_dict(config: Any) -> dict[str, Any]:
    """What was composed, or a part of it, as plain values."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))


def composed(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """conf/NAME.yaml with overrides, composed without Hydra's command line."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return as_dict(compose(name, list(overrides)))


Setting = tuple[list[str], Any]  # where a value goes, and the value


class Composer:
    """Hydra's composition, done once per combination of groups and of values that other values depend on.

    Composing takes Hydra some 60 ms, nearly all of it for the defaults list, which only choices of groups can
    change; setting and resolving values takes OmegaConf 10 ms more. So a configuration is composed once for
    each combination of groups, resolved once for each combination of values that an interpolation may look
    at, and plain values are put into the resolved one. A test compares with Hydra for every sweep.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig, without: Sequence[str] = ()) -> None:
        """`without` are keys that no job needs; a long `figure` takes longer to copy than all others."""
        self.loader = cast(ConfigLoaderImpl, loader)
        self.master = master
        self.without = without
        self.parser = OverridesParser.create(config_loader=loader)
        # What each of these has answered once is kept as long as this composer.
        self._base = cache(self._compose_groups)
        self._resolved = cache(self._resolve)
        self._looked_at = cache(self._names_in_interpolations)
        self._setting = cache(self._plain_setting)
        self._parse = cache(lambda word: self.parser.parse_overrides([word])[0])
        self._is_group = cache(self.loader.repository.group_exists)

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The resolved configuration of a job, without Hydra's own part; jobs share what they do not set."""
        groups = tuple(word for word in overrides if self._is_group(self._parse(word).key_or_group))
        rest = [word for word in overrides if word not in groups]
        settings = [self._setting(word, groups) for word in rest]
        early = tuple(word for word, setting in zip(rest, settings, strict=True) if setting is None)
        late = [setting for setting in settings if setting is not None]
        keys = [self._parse(word).key_or_group.split(".") for word in early]
        if any(path[: len(key)] == key for path, _ in late for key in keys):
            early, late = tuple(rest), []  # words about the same keys: their order counts
        content = dict(self._resolved(groups, early))
        for path, value in late:
            _put(content, path, value)
        return content

    def _resolve(self, groups: tuple[str, ...], early: tuple[str, ...]) -> dict[str, Any]:
        config = copy.deepcopy(self._base(groups))
        ConfigLoaderImpl._apply_overrides_to_config([self._parse(word) for word in early], config)
        return as_dict(config)

    def _plain_setting(self, word: str, groups: tuple[str, ...]) -> Setting | None:
        """The path and the value of a word that sets one value in place of another, which nothing else uses.

        None for words that do more, or whose key is mentioned by an interpolation.
        """
        override = self._parse(word)
        value = override.value()
        if override.type != OverrideType.CHANGE or not isinstance(value, int | float | str | None):
            return None
        if isinstance(value, str) and "$" in value:
            return None
        path = override.key_or_group.split(".")
        node: Any = self._base(groups)
        for name in path:
            if name in self._looked_at(groups) or not isinstance(node, DictConfig) or name not in node:
                return None
            node = node._get_node(name)
        return None if isinstance(node, Container) else (path, value)

    def _names_in_interpolations(self, groups: tuple[str, ...]) -> set[str]:
        content = OmegaConf.to_container(self._base(groups), resolve=False)
        return set(re.findall(r"\w+", " ".join(_interpolations(content))))

    def _compose_groups(self, groups: tuple[str, ...]) -> DictConfig:
        config = self.loader.load_sweep_config(self.master, list(groups))
        with open_dict(config):
            for name in ("hydra", *self.without):
                config.pop(name, None)
        return config


def _put(content: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value in nested groups; groups that change are copied, because others share them."""
    for name in path[:-1]:
        content[name] = dict(content[name])
        content = content[name]
    content[path[-1]] = value


def _interpolations(content: Any) -> Iterator[str]:
    """Every value that is made from others."""
    if isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _interpolations(item)
    elif isinstance(content, str) and "$" in content:
        yield content


def product(words: Sequence[str], parser: OverridesParser) -> list[list[str]]:
    """Every combination of the values in `words`, as Hydra's own sweeper makes them: one list per job."""
    if not words:
        return [[]]
    batches = BasicSweeper.split_arguments(parser.parse_overrides(list(words)), None)
    return list(itertools.chain.from_iterable(batches))


def composed_value(config: DictConfig, key: str) -> Any:
    """What a composed configuration has for a key; for a group such as `method`, the name of its option."""
    choices = config.hydra.runtime.choices
    if key in choices:
        return choices[key]
    absent = object()
    value = OmegaConf.select(config, key, default=absent)
    if value is absent:
        raise ConfigError(f"There is no key {key}; `lmsweep --help` lists all keys.")
    return value


def plain(value: Any) -> str:
    """A value as text that is equal for equal values, however they are written: 1 and 1.0, inf and "inf"."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return repr(float(value))
        except ValueError:
            pass
    return str(value)


def _pick(table: str, key: str, *, _root_: DictConfig) -> Any:
    """`${pick:grid.gammas,margin.norm}` in conf/: the entry of a mapping for the value that a key has."""
    entries = cast(Mapping[Any, Any], OmegaConf.select(_root_, table))
    value = OmegaConf.select(_root_, key)
    for name, entry in entries.items():
        if plain(name) == plain(value):
            return entry
    known = ", ".join(map(str, entries))
    raise ConfigError(f"{key}={value} has no entry in {table}, which has {known}")


OmegaConf.register_new_resolver("pick", _pick, replace=True)
