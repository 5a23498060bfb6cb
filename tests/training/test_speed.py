"""Mixed precision, torch.compile and channels-last leave the loss with its margin what it is."""

import time

import pytest
import torch

from lmsweep.errors import ConfigError
from lmsweep.sweep.identity import run_id
from lmsweep.training.run import prepare_run, run
from lmsweep.training.speed import compile_layers
from tests.test_config import config, identity

TINY = ("trainer.accelerator=cpu", "trainer.max_steps=3", "trainer.val_every=3", "trainer.log_every=1")
MARGIN = ("method=margin_l2_all", "margin.layers=everything", "margin.top_k=2")
MODELS = {
    "wide_resnet": ("model=wide_resnet", "model.depth=10", "model.width=1", "trainer.batch_size=8"),
    "inception_v3": (
        "model=inception_v3",
        "model.width=0.0625",
        "model.size=75",
        "model.dropout=0",
        "trainer.batch_size=4",
    ),
}


def first_step(*overrides: str, around=torch.enable_grad) -> tuple[float, torch.Tensor]:
    """The loss of the first batch, margin and all, and its gradient."""
    job = prepare_run(config(*TINY, *MARGIN, *overrides))
    module = job.module.train()
    if job.margin:
        job.margin.batched = False
        job.margin._names = job.margin.check(module)
    x, y = job.data.train.x[:8].float(), job.data.train.y[:8]
    module.trainer = type("Trainer", (), {"loggers": []})()
    with around():
        loss = job.margin._wrap(module, module.training_step)((x, y), 0)
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    return loss.item(), gradient


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    monkeypatch.setattr("lmsweep.margin.callback._is_logging_step", lambda _: False)
    monkeypatch.setattr("pytorch_lightning.LightningModule.trainer", None)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("model", MODELS)
def test_channels_last_only_rounds(model):
    plain = first_step(*MODELS[model])
    last = first_step(*MODELS[model], "trainer.channels_last=true")
    print(model, last[0] / plain[0] - 1, relative(last[1], plain[1]))


@pytest.mark.parametrize("model", MODELS)
def test_bf16(model):
    plain = first_step(*MODELS[model])
    half = first_step(*MODELS[model], around=lambda: torch.autocast("cpu", torch.bfloat16))
    print(model, plain[0], half[0] / plain[0] - 1, relative(half[1], plain[1]))


def test_compile():
    plain = first_step(*MODELS["wide_resnet"])
    t = time.time()
    fast = first_step(*MODELS["wide_resnet"], "trainer.compile=true")
    print(time.time() - t, fast[0] / plain[0] - 1, relative(fast[1], plain[1]))
