"""Adversarial training: which samples change and how, beside the margin loss, and over an interruption."""

import copy
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lmsweep.attacks import IFGSM, attack_curve, fgsm, pgd
from lmsweep.config.hydra import config_folder
from lmsweep.config.run import RunConfig, split
from lmsweep.data import EvaluationBatches, Split
from lmsweep.margin import MarginLoss
from lmsweep.seeds import Share
from lmsweep.training.callbacks import AdversarialTraining, adversarial_batch, truncated_normal
from lmsweep.training.run import prepare_run, run

SHORT = ("trainer.max_steps=24", "trainer.val_every=8", "trainer.batch_size=32", "model.width=4")


def configured(*overrides: str) -> RunConfig:
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return split(OmegaConf.to_container(compose("config", [*overrides]), resolve=True))[0]


@pytest.fixture(scope="module")
def job():
    return prepare_run(configured("method=xent", *SHORT))


@pytest.fixture
def batch(job):
    return next(iter(EvaluationBatches(job.data.train, 20)))


def test_fgsm_replaces_the_first_half_by_examples_against_the_predicted_class(job, batch):
    net, (x, y) = job.module.network, batch
    made = adversarial_batch(net, x, y, kind="fgsm", epsilon=0.2, fraction=0.5, seed=0, label="predicted")
    predicted = net.eval()(x[:10]).argmax(1)
    assert torch.equal(made[:10], fgsm(net, x[:10], predicted, epsilon=0.2))
    assert torch.equal(made[10:], x[10:])
    given = adversarial_batch(net, x, y, kind="fgsm", epsilon=0.2, fraction=1.0, seed=0)
    assert torch.equal(given, fgsm(net, x, y, epsilon=0.2))


def test_random_epsilons_are_per_sample_and_bounded(job, batch):
    net, (x, y) = job.module.network, batch
    options = {"kind": "fgsm", "epsilon": 0.2, "fraction": 1.0, "random_epsilon": True}
    made = adversarial_batch(net, x, y, **options, seed=1)
    sizes = (made - x).flatten(1).abs().amax(1)
    assert len(sizes.unique()) > 15
    assert sizes.max() <= 0.2 + 1e-6
    assert torch.equal(made, adversarial_batch(net, x, y, **options, seed=1))
    assert not torch.equal(made, adversarial_batch(net, x, y, **options, seed=2))


def test_epsilons_follow_the_truncated_normal():
    drawn = truncated_normal(200_000, 0.3, torch.Generator().manual_seed(0))
    assert drawn.min() >= 0
    assert drawn.max() <= 0.3
    # Half-normal of deviation 0.15 cut at two deviations: its mean, and its mass below one deviation.
    assert float(drawn.mean()) == pytest.approx(0.15 * 0.72275, rel=0.01)
    assert float((drawn < 0.15).float().mean()) == pytest.approx(0.6827 / 0.9545, rel=0.01)


def test_pgd_replaces_the_whole_batch(job, batch):
    net, (x, y) = job.module.network, batch
    made = adversarial_batch(net, x, y, kind="pgd", epsilon=0.3, alpha=0.01, steps=40, fraction=1.0, seed=3)
    assert torch.equal(made, pgd(net, x, y, epsilon=0.3, alpha=0.01, steps=40, seed=3))
    assert (made - x).abs().max() == pytest.approx(0.3, abs=1e-5)


def test_presets_are_those_of_the_papers():
    madry = configured("method=xent", "adversarial=pgd")
    assert madry.method_name() == "xent+pgd"
    node = madry.adversarial
    assert (node.epsilon, node.alpha, node.steps, node.fraction) == (0.3, 0.01, 40, 1.0)
    kurakin = configured("method=margin", "margin.norm=inf", "adversarial=fgsm")
    assert kurakin.method_name() == "margin_linf_all+fgsm"
    node = kurakin.adversarial
    assert (node.fraction, node.random_epsilon, node.label) == (0.5, True, "predicted")
    assert configured("method=hinge", "adversarial=pgd").method_name() == "hinge+pgd"


def test_unused_keys_do_not_count_for_the_identity():
    plain = configured("method=xent").identity_dict()
    assert "adversarial" not in plain
    assert configured("method=xent", "adversarial.epsilon=0.1").identity_dict() == plain
    fast = configured("method=xent", "adversarial=fgsm").identity_dict()
    assert fast != plain
    assert configured("method=xent", "adversarial=fgsm", "adversarial.steps=3").identity_dict() == fast
    spelled_out = ("kind=fgsm", "fraction=0.5", "random_epsilon=true", "label=predicted")
    assert configured("method=xent", *(f"adversarial.{word}" for word in spelled_out)).identity_dict() == fast
    assert configured("method=xent", "adversarial=fgsm", "adversarial.epsilon=0.1").identity_dict() != fast


def test_the_margin_loss_sees_the_adversarial_batch_in_one_forward(job, batch):
    x, y = batch
    seen = []

    class Watched(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = copy.deepcopy(job.module.network)
            self.network.add_module("norm", nn.BatchNorm1d(10))

        def forward(self, x):
            seen.append(x.detach().clone())
            return self.network.norm(self.network(x))

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    module = Watched()
    margin = MarginLoss(layers=["input", "output"], gamma=0.5, batch_norm="per_sample")
    hardening = AdversarialTraining(seed=5, kind="fgsm", epsilon=0.1, fraction=1.0)
    trainer = pl.Trainer(
        max_steps=1, callbacks=[margin, hardening], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(module.train(), DataLoader(TensorDataset(x, y), batch_size=len(x)))
    (only,) = seen
    assert torch.equal(only, fgsm(module.network, x, y, epsilon=0.1))
    assert int(module.network.norm.num_batches_tracked) == 1  # the attack left no trace in batch norm
    assert "training_step" not in vars(module)
    assert "on_after_batch_transfer" not in vars(module)


@pytest.mark.parametrize(("method", "kind"), [("margin", "fgsm"), ("xent", "pgd")])
def test_an_interrupted_run_ends_bitwise_like_an_undisturbed_one(tmp_path, method, kind):
    words = (f"method={method}", "margin.norm=inf", f"adversarial={kind}", "adversarial.steps=3")
    config = configured(*words, "model.dropout=0.2", *SHORT)

    class Broken(Split):
        """Data that the user stops in the middle of the second half."""

        def read(self, indices, **more) -> Iterator:
            yield from islice(super().read(indices, **more), 13)
            raise KeyboardInterrupt

    def train(folder: Path, broken: bool):
        folder.mkdir(exist_ok=True)
        work = prepare_run(config)
        if broken:
            split = Broken(work.data.train.x, work.data.train.y)
            split.to = lambda device: split
            object.__setattr__(work.data, "train", split)
        return run(work, "id", folder)

    whole = train(tmp_path / "whole", broken=False)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", broken=True)
    assert torch.load(tmp_path / "parts" / "checkpoint.ckpt", weights_only=True)["global_step"] == 8
    resumed = train(tmp_path / "parts", broken=False)
    assert resumed["metrics"] == whole["metrics"]
    lines = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    ]
    assert lines[0] == lines[1]


@pytest.mark.slow
def test_pgd_training_makes_a_network_robust(tmp_path):
    common = ("method=xent", "optimizer.lr=0.05", "model.width=8", "trainer.max_steps=300")
    hard = ("adversarial=pgd", "adversarial.epsilon=0.1", "adversarial.steps=3", "adversarial.alpha=0.05")
    accuracy = {}
    for name, more in {"plain": (), "hard": hard}.items():
        work = prepare_run(configured(*common, *more))
        (tmp_path / name).mkdir()
        run(work, "id", tmp_path / name)
        test = EvaluationBatches(work.data.test, 500)
        accuracy[name] = attack_curve(
            work.module.network, test, IFGSM(epsilons=(0.0, 0.1), alpha=0.01)
        ).accuracy
    assert accuracy["hard"][0] > 0.85
    assert accuracy["hard"][1] > accuracy["plain"][1] + 0.15


@pytest.mark.parametrize("kind", ["fgsm", "pgd"])
def test_what_happens_to_a_share_is_what_happens_to_the_whole_batch(job, batch, kind):
    net, (x, y) = job.module.network, batch
    options = {"kind": kind, "epsilon": 0.2, "fraction": 0.45, "random_epsilon": True, "steps": 3, "seed": 1}
    whole = adversarial_batch(net, x, y, **options)
    for rank in range(4):
        share = Share(rank, 4)
        part = adversarial_batch(net, share.of(x), share.of(y), share=share, **options)
        torch.testing.assert_close(part, share.of(whole))
