"""Configurations as the command line composes them."""

from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.config.hydra import config_folder
from lmsweep.config.run import RunConfig, split


@cache
def configured(*overrides: str) -> RunConfig:
    """The run that `lmsweep` with these overrides would be."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        composed = compose("config", list(overrides))
    config, _ = split(OmegaConf.to_container(composed, resolve=True))  # type: ignore[arg-type]
    return config
