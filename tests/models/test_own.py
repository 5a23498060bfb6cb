"""Networks of a user's own, by `_target_`: modules, LightningModules, factories of other libraries."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from lmsweep.data import Dataset, Split
from lmsweep.errors import ConfigError
from lmsweep.training.build import build_module
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

OWN = '''
import pytorch_lightning as pl
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, input_shape, num_classes, units=8):
        super().__init__()
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], units), nn.ReLU())
        self.last = nn.Linear(units, num_classes)

    def forward(self, x):
        return self.last(self.first(x))


class Lit(pl.LightningModule):
    """Trains itself elsewhere; here its forward gives the logits."""

    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Linear(64, 16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x.flatten(1))))

    def training_step(self, batch, batch_idx):
        raise RuntimeError("not called")

    def configure_optimizers(self):
        raise RuntimeError("not called")


class TwoHeads(Net):
    aux_weight = 0.3

    def forward(self, x):
        out = super().forward(x)
        return (out, out) if self.training else out


def nothing():
    return 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "their_nets.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("their_nets", None)


def train(tmp_path: Path, *overrides: str) -> dict:
    steps = ("trainer.max_steps=300", "trainer.val_every=100", "trainer.batch_size=64")
    job = prepare_run(config("model=own", *steps, *overrides))
    return run(job, "own", tmp_path)


def test_a_module_of_ones_own_trains_with_the_margin_loss(own, tmp_path):
    results = train(tmp_path, "model._target_=their_nets.Net", "+model.units=32", "margin.layers=first")
    assert results["metrics"]["test_accuracy"] > 0.5
    weights = torch.load(tmp_path / "checkpoint.ckpt", weights_only=True)["state_dict"]
    assert weights["network.first.1.weight"].shape == (32, 64)


def test_a_lightning_module_is_used_by_its_forward(own, tmp_path):
    results = train(tmp_path, "model._target_=their_nets.Lit", "margin.layers=all", "margin.gamma=0.1")
    assert results["metrics"]["test_accuracy"] > 0.5


def test_two_heads_add_up_by_the_networks_own_weight(own, tmp_path):
    job = prepare_run(config("model=own", "model._target_=their_nets.TwoHeads", "method=xent"))
    x, y = torch.rand(4, 1, 8, 8), torch.arange(4)
    expected = 1.3 * nn.functional.cross_entropy(job.module.train()(x)[0], y)
    torch.testing.assert_close(job.module.training_step((x, y), 0), expected)


def test_factories_that_pass_their_arguments_on_get_the_number_of_classes():
    split = Split(torch.rand(4, 3, 32, 32), torch.arange(4))
    data = Dataset(split, split, split, num_classes=7)
    module = build_module(config("model=own", "model._target_=torchvision.models.resnet18"), data)
    assert module.eval()(split.x).shape == (4, 7)
    other = config("model=own", "model._target_=torchvision.models.resnet18", "+model.num_classes=9")
    with pytest.raises(ConfigError, match=r"it gave \(2, 9\), and not logits \(2, 7\)"):
        build_module(other, data)


def test_what_is_no_network_is_refused(own):
    with pytest.raises(ConfigError, match=r"their_nets\.nothing gave no torch\.nn\.Module"):
        prepare_run(config("model=own", "model._target_=their_nets.nothing"))
    with pytest.raises(ConfigError, match=r"model\._target_"):
        config("model=own")
