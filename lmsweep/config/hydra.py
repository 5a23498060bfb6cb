"""Compose the configurations of many jobs that differ in values more than in choices."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict


def config_folder() -> str:
    """conf/ of this checkout, or the copy inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "conf"
    return str(installed if installed.is_dir() else package.parent / "conf")


class Composer:
    """Hydra's composition, done once per combination of groups.

    Composing takes Hydra some 60 ms, nearly all of it for the defaults list, which only choices of groups can
    change. So a configuration is composed once for each such combination and copied, and the values of a job
    are set by the very function that Hydra sets them with. A test compares both ways for every sweep.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig, without: Sequence[str] = ()) -> None:
        """`without` are keys that no job needs; a long `figure` takes longer to copy than all others."""
        self.loader = cast(ConfigLoaderImpl, loader)
        self.master = master
        self.without = without
        self.parser = OverridesParser.create(config_loader=loader)
        self._bases: dict[tuple[str, ...], DictConfig] = {}
        self._parsed: dict[str, Override] = {}
        self._groups: dict[str, bool] = {}

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The resolved configuration of a job, without Hydra's own part."""
        parsed = [self._parse(word) for word in overrides]
        groups = [o for o in parsed if self._is_group(o.key_or_group)]
        values = [o for o in parsed if not self._is_group(o.key_or_group)]
        config = copy.deepcopy(self._base(tuple(str(o.input_line) for o in groups)))
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))

    def _parse(self, word: str) -> Override:
        if word not in self._parsed:
            (self._parsed[word],) = self.parser.parse_overrides([word])
        return self._parsed[word]

    def _base(self, groups: tuple[str, ...]) -> DictConfig:
        if groups not in self._bases:
            config = self.loader.load_sweep_config(self.master, list(groups))
            with open_dict(config):
                for name in ("hydra", *self.without):
                    config.pop(name, None)
            self._bases[groups] = config
        return self._bases[groups]

    def _is_group(self, key: str) -> bool:
        if key not in self._groups:
            self._groups[key] = self.loader.repository.group_exists(key)
        return self._groups[key]
