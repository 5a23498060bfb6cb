"""Composing once per choice of groups gives what Hydra gives when it composes every job."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict

from lmsweep.config.hydra import Composer, config_folder

JOBS = (
    [],
    ["seed=3"],
    ["method=xent", "seed=3", "margin.gamma=4"],
    ["margin.gamma=4", "method=margin", "margin.norm=inf", "adversarial=pgd", "adversarial.steps=3"],
    ["data=cifar10", "data.label_noise=0.2", "model=wide_resnet", "+model.extra=[1,2]"],
    ["optimizer=rmsprop", "~optimizer.momentum", "margin.norm=inf"],
    ["method=xent", "seed=4", "model.channels=[3,4]"],
    ["margin.gamma=4", "~margin.gamma", "+margin.gamma=5"],
    ["+model.extra=1", "model.extra=2"],
    ["margin.gamma=null", "data.root='a b'", "margin.norm=2", "margin.gamma=3"],
    ["data.root=${outputs}/data", "outputs=elsewhere"],
    ["outputs=elsewhere"],
)


def by_hydra(loader, master, overrides):
    config = loader.load_sweep_config(master, overrides)
    with open_dict(config):
        del config["hydra"]
    return OmegaConf.to_container(config, resolve=True)


def test_it_equals_hydras_composition_also_after_other_jobs():
    with initialize_config_dir(config_folder(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", [], RunMode.MULTIRUN)
        composer = Composer(loader, master)
        for overrides in (*JOBS, *reversed(JOBS)):
            assert composer.compose(overrides) == by_hydra(loader, master, list(overrides))


def test_an_unknown_key_is_refused():
    with initialize_config_dir(config_folder(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        composer = Composer(loader, loader.load_configuration("config", [], RunMode.MULTIRUN))
        with pytest.raises(Exception, match=r"margin\.gama"):
            composer.compose(["margin.gama=1"])
