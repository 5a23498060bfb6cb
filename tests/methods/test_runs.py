"""Every method as a run: with wrong labels, few images and dropout, over an interruption; what is refused."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from lmsweep.config.hydra import config_folder
from lmsweep.data import Split
from lmsweep.errors import ConfigError
from lmsweep.methods import method_names
from lmsweep.methods.losses import GeneralisedCrossEntropy
from lmsweep.training.module import Classifier
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config
from tests.methods.networks import TwoHeads

SHORT = (
    "trainer.max_steps=12",
    "trainer.val_every=4",
    "trainer.batch_size=16",
    "model.width=2",
    "model.dropout=0.2",
    "data.label_noise=0.4",
    "data.fraction=0.5",
    "adversarial.steps=2",
)
OTHERS = [name for name in method_names() if name not in ("xent", "hinge")]


class Broken(Split):
    """Data that the user stops after a few steps."""

    def read(self, indices, **more) -> Iterator:
        yield from islice(super().read(indices, **more), 7)
        raise KeyboardInterrupt


def train(folder: Path, *overrides: str, broken: bool = False):
    folder.mkdir(exist_ok=True)
    work = prepare_run(config(*overrides))
    if broken:
        split = Broken(work.data.train.x, work.data.train.y)
        split.to = lambda device: split
        object.__setattr__(work.data, "train", split)
    results = run(work, "id", folder)
    return results, torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]


def test_every_method_has_a_preset_whose_name_figures_use():
    for name in OTHERS:
        assert (Path(config_folder()) / "method" / f"{name}.yaml").is_file()
        assert config(f"method={name}").method_name() == name


@pytest.fixture(scope="module")
def xent(tmp_path_factory):
    return train(tmp_path_factory.mktemp("xent"), "method=xent", *SHORT)[1]


@pytest.mark.parametrize("name", OTHERS)
def test_a_resumed_run_is_bitwise_an_undisturbed_one(tmp_path, xent, name):
    whole, weights = train(tmp_path / "whole", f"method={name}", *SHORT)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", f"method={name}", *SHORT, broken=True)
    resumed, again = train(tmp_path / "parts", f"method={name}", *SHORT)
    assert resumed["metrics"] == whole["metrics"]
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[key], again[key]) for key in weights)
    assert any(not torch.equal(weights[key], value) for key, value in xent.items())  # another loss


@pytest.mark.parametrize("name", ["liu", "jacobian", "trades"])
def test_mixed_precision_runs_to_the_end(tmp_path, name):
    results, _ = train(tmp_path / name, f"method={name}", *SHORT, "trainer.precision=bf16-mixed")
    assert math.isfinite(results["metrics"]["train_loss"])


@pytest.mark.parametrize(
    "words", [["method=jacobian", "method.margin=true"], ["method=gce", "adversarial=fgsm"]]
)
def test_methods_combine_with_the_margin_and_with_adversarial_batches(tmp_path, words):
    results, _ = train(tmp_path / "both", *words, *SHORT)
    assert results["method"] in ("margin_l2_all_jacobian", "gce+fgsm")
    assert math.isfinite(results["metrics"]["train_loss"])


def test_auxiliary_heads_get_the_criterion_and_the_main_one_the_term():
    torch.manual_seed(0)
    network = TwoHeads((1, 2, 2), 3)
    method = GeneralisedCrossEntropy(q=0.7)
    module = Classifier(network, xent_weight=0.5, optimizer=torch.optim.SGD, method=method).train()
    x, y = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 2, 0])
    one, two = (F.cross_entropy(z, y) * 0.5 + method.criterion(z, y) for z in network(x))
    torch.testing.assert_close(module.training_step((x, y), 0), one + 0.3 * two)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["method.criterion=gec"],
            "method.criterion=gec is not allowed: it must be one of b",
        ),
        (["method=gce", "method.gce.q=2"], "method.gce.q=2 is not allowed: it must be a number in (0, 1]"),
        (
            ["method=liu", "method.liu.m=two"],
            "method.liu.m=two is not allowed: it must be a whole number",
        ),
        (
            ["method=liu", "model=own", "model._target_=tests.methods.networks.WithoutLinear"],
            "method=liu needs a linear last layer, so model=own does not fit: WithoutLinear has no",
        ),
        (
            ["method=liu", "model=own", "model._target_=tests.methods.networks.Doubled"],
            "method=liu needs a linear last layer, so model=own does not fit: the logits of Doubled",
        ),
        (
            ["method=trades", "method.margin=true"],
            "method.margin=true is not allowed with method=trades: it runs the network more than once; leave",
        ),
        (
            ["method=mma", "adversarial=fgsm"],
            "adversarial=fgsm is not allowed with method=mma: it attacks itself",
        ),
        (
            ["method=jacobian", "trainer.compile=true"],
            "trainer.compile=true is not allowed with method=jacobian: a compiled backward pass cannot",
        ),
        (
            ["method=input_gradient", "method.input_gradient.norm=0.5"],
            "method.input_gradient.norm=0.5 is not allowed: it must be a number >= 1, or inf",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(words, sentence):
    with pytest.raises(ConfigError) as refused:
        prepare_run(config(*words))
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)
