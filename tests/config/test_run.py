"""The schema over conf/: every preset fits it, and identity counts what can change a result, nothing else."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.config.hydra import config_folder
from lmsweep.config.identity import run_id
from lmsweep.config.run import RunConfig, parse, split
from lmsweep.errors import ConfigError

CONF = Path(config_folder())
RUN_GROUPS = ("data", "model", "method", "adversarial", "optimizer", "trainer", "tracking")
OPTIONS = [f"{group}={file.stem}" for group in RUN_GROUPS for file in sorted((CONF / group).glob("*.yaml"))]


def config(*overrides: str) -> RunConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return split(OmegaConf.to_container(compose("config", list(overrides)), resolve=True))[0]


def identity(*overrides: str) -> str:
    return run_id(config(*overrides).identity_dict())


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_in_conf_fits_the_schema(option):
    own = ["model._target_=torch.nn.Identity"] if option == "model=own" else []
    assert config(option, *own)


def test_what_is_written_is_what_is_read():
    one = config("margin.norm=inf", "margin.gamma=[1,2]", "data.label_noise=0.2")
    assert parse(one.to_dict()) == one
    assert run_id(parse(one.to_dict()).identity_dict()) == run_id(one.identity_dict())


SAME = {
    "tracking": ("tracking=wandb",),
    "output folder": ("outputs=elsewhere",),
    "how often metrics are written": ("trainer.log_every=7",),
    "an equal number": ("margin.gamma=1",),
    "the defaults spelled out": ("method=margin", "margin.norm=2", "margin.layers=all", "adversarial=none"),
    "an equal number that is an argument of the model": ("model.dropout=0", "optimizer.momentum=0.90"),
    "how candidates are chosen when all are": ("margin.candidates=distance",),
    "a decay interval without decay": ("optimizer.lr_decay_every=7",),
    "telemetry that is never taken": (
        "telemetry.norm=inf",
        "telemetry.layers=[input,conv1]",
        "telemetry.samples=7",
    ),
}
OTHER = {
    "seed": ("seed=1",),
    "norm": ("margin.norm=1",),
    "gamma": ("margin.gamma=2",),
    "noise": ("data.label_noise=0.2",),
    "fraction": ("data.fraction=0.5",),
    "dropout": ("model.dropout=0.1",),
    "weight decay": ("optimizer.weight_decay=0.1",),
    "steps": ("trainer.max_steps=7",),
    "method": ("method=xent",),
    "telemetry": ("telemetry.every=5",),
    "norm of the telemetry": ("telemetry.every=5", "telemetry.norm=inf"),
    "layers of the telemetry": ("telemetry.every=5", "telemetry.layers=input"),
    "samples of the telemetry": ("telemetry.every=5", "telemetry.samples=7"),
}


@pytest.mark.parametrize("name", SAME)
def test_keys_that_cannot_change_the_result_do_not_change_the_id(name):
    assert identity(*SAME[name]) == identity()


def test_keys_that_can_change_the_result_all_give_different_ids():
    ids = {identity(*overrides) for overrides in OTHER.values()} | {identity()}
    assert len(ids) == len(OTHER) + 1


def test_margin_keys_do_not_count_for_a_method_without_margin():
    assert identity("method=xent") == identity("method=xent", "margin.gamma=4", "margin.layers=input")
    assert identity("method=xent") != identity("method=hinge")


def test_a_run_stored_before_there_was_telemetry_is_still_read():
    stored = config().to_dict()
    del stored["telemetry"]
    assert run_id(parse(stored).identity_dict()) == identity()
    assert parse(stored).telemetry == config().telemetry


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["method=xent"], "xent"),
        (["method=hinge"], "hinge"),
        (["method=margin", "margin.norm=inf", "margin.layers=input"], "margin_linf_input"),
        (["margin.norm=inf"], "margin_linf_all"),
        (
            [
                "method=margin",
                *("margin.norm=inf", "margin.layers=input", "margin.exact=true"),
                "adversarial=pgd",
            ],
            "margin_linf_input_exact+pgd",
        ),
        (["method=margin_released"], "margin_l2_all_softmax"),
        (["method=bald", "adversarial=fgsm"], "xent+fgsm+bald"),
        (["method.criterion=hinge", "margin.exact=true"], "margin_l2_all_hinge_exact"),
        (["margin.norm=1.5", "margin.layers=[conv1,output]"], "margin_l1.5_conv1+output"),
    ],
)
def test_the_name_of_a_method_follows_from_its_keys(overrides, name):
    assert config(*overrides).method_name() == name


def test_a_missing_key_is_named():
    incomplete = config().to_dict()
    del incomplete["margin"]["gamma"]
    with pytest.raises(ConfigError, match=r"margin\.gamma is missing: it must be a number > 0"):
        parse(incomplete)


def test_a_run_stored_before_there_were_devices_and_speed_ups_is_still_the_same_run():
    stored = config().to_dict()
    for key in ("devices", "num_nodes", "compile", "channels_last"):
        del stored["trainer"][key]
    assert run_id(parse(stored).identity_dict()) == identity()
    assert parse(stored).trainer == config("trainer.channels_last=false").trainer


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (["data.mean=[0.5]"], "data.mean=[0.5] is not allowed without data.std: give both"),
        (["data.std=[0.5]"], "data.std=[0.5] is not allowed without data.mean: give both"),
        (["optimizer.momentum=2"], "optimizer.momentum=2 is not allowed: it must be a number in [0, 1)"),
        (["optimizer=rmsprop", "optimizer.alpha=1"], "optimizer.alpha=1 is not allowed"),
    ],
)
def test_values_that_torch_would_take_without_a_word_are_refused(keys, sentence):
    with pytest.raises(ConfigError) as refused:
        config(*keys)
    assert str(refused.value).startswith(sentence)


def test_ids_of_stored_runs_stay():
    """The ids of runs from before there were other methods; a change orphans every stored run."""
    assert identity() == "f7abf78dce09"
    assert identity("method=xent") == "ae9a083902e8"
    assert identity("method=hinge", "adversarial=pgd") == "061116278c4f"


def test_the_options_of_a_method_count_for_that_method_only():
    assert identity("method=gce") != identity("method=gce", "method.gce.q=0.5")
    assert identity("method=gce") == identity("method=gce", "method.sce.beta=3")
    assert identity("method=xent") == identity("method=xent", "method.gce.q=0.5")
    stored = config("method=xent").to_dict()
    stored["method"] = {"criterion": "xent", "xent_weight": 1.0, "margin": False}
    assert run_id(parse(stored).identity_dict()) == identity("method=xent")
