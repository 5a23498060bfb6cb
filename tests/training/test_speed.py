"""Mixed precision, torch.compile and channels-last leave the loss with its margin what it is."""

import functools
import json

import pytest
import torch

from lmsweep.errors import ConfigError
from lmsweep.training.build import compile_layers
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config, identity

TINY = ("trainer.accelerator=cpu", "trainer.max_steps=3", "trainer.val_every=3", "trainer.log_every=1")
MARGIN = ("method=margin", "margin.layers=everything", "margin.top_k=2")
WIDE = ("model=wide_resnet", "model.depth=10", "model.width=1", "trainer.batch_size=8")
INCEPTION = ("model=inception_v3", "model.width=0.0625", "model.size=75", "model.dropout=0")
MODELS = pytest.mark.parametrize("model", [WIDE, INCEPTION], ids=["wide_resnet", "inception_v3"])


@pytest.fixture(autouse=True)
def no_logging(monkeypatch):
    monkeypatch.setattr("lmsweep.margin.callback._is_logging_step", lambda _: False)


def first_step(*overrides, change=lambda _: None, dtype=torch.float32, around=torch.enable_grad):
    """The loss of a batch, margin and all, and its gradient; `change` does something to the network first."""
    job = prepare_run(config(*TINY, *MARGIN, *overrides))
    module = job.module.train().to(dtype)
    change(module)
    job.margin.batched = False
    job.margin._names = job.margin.check(module)
    x, y = job.data.train.x[:8].to(dtype), job.data.train.y[:8]
    with around():
        loss = job.margin._wrap(module, module.training_step)((x, y), 0)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in module.parameters()])


def relative(a, b):
    return float((a - b).norm() / b.norm())


@MODELS
def test_channels_last_is_the_same_loss(model):
    """In float64, because a tiny Inception turns the rounding of float32 into percents of its gradient.

    Enlarged digits have equal neighbours, and which of them a max-pooling sends its gradient to depends on
    the memory format; so Inception is measured where no pooling follows at once.
    """
    model = (*model, "margin.layers=[input,Mixed_5d,Mixed_7a,output]") if model == INCEPTION else model
    plain = first_step(*model, "trainer.channels_last=false", dtype=torch.float64)
    seen = []

    def watch(module):
        layer = module.network.get_submodule(module.network.layer_names[1])
        layer.register_forward_hook(lambda _, args, out: seen.append(out))

    last = first_step(*model, "trainer.channels_last=true", change=watch, dtype=torch.float64)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert last[0] == pytest.approx(plain[0], rel=1e-9)
    assert relative(last[1], plain[1]) < 1e-7


@MODELS
def test_bf16_keeps_the_loss_within_the_rounding_of_its_eight_bits(model):
    plain = first_step(*model)
    half = first_step(*model, around=lambda: torch.autocast("cpu", torch.bfloat16))
    # Inception's 96 convolutions and 96 norms round by 2^-8 each: 5.4% when the errors add up like random
    # steps. Wide ResNet's 16 would be allowed 1.6%.
    assert half[0] == pytest.approx(plain[0], rel=0.01 if model == WIDE else 192**0.5 * 2**-8)
    if model == WIDE:  # the gradient of a tiny Inception is at the mercy of any rounding
        # 16 operations, forward and backward, for two losses: errors of up to 64 * 2^-8, a quarter of the
        # gradient, which batch norm over 8 samples may double. Half a gradient of error is a cosine of 0.875.
        assert torch.cosine_similarity(half[1], plain[1], dim=0) > 0.875


@pytest.mark.slow
def test_compiled_layers_give_the_same_loss(monkeypatch):
    """All layers through autograd's compiler, one of them through to machine code, which takes its time."""
    plain = first_step(*WIDE)

    def one(module):
        module.network.layer_names = ("block2.0",)
        compile_layers(module)

    alone = first_step(*WIDE, change=lambda m: setattr(m.network, "layer_names", ("block2.0",)))
    fast = first_step(*WIDE, change=one)
    assert fast[0] == pytest.approx(alone[0], rel=1e-5)
    assert relative(fast[1], alone[1]) < 1e-4

    monkeypatch.setattr("torch.compile", functools.partial(torch.compile, backend="aot_eager"))
    every = first_step(*WIDE, "trainer.compile=true")
    assert every[0] == pytest.approx(plain[0], rel=1e-5)
    assert relative(every[1], plain[1]) < 1e-4


@pytest.mark.slow
def test_a_run_with_both_ends_where_the_plain_one_does(tmp_path, monkeypatch):
    """From end to end: validation, telemetry, checkpoint and selection included."""
    monkeypatch.setattr("torch.compile", functools.partial(torch.compile, backend="aot_eager"))
    results, weights = [], []
    for name, more in (("plain", ("trainer.channels_last=false",)), ("fast", ("trainer.compile=true",))):
        folder = tmp_path / name
        folder.mkdir()
        job = prepare_run(config(*TINY, *MARGIN, *WIDE, "telemetry.every=3", *more))
        results.append(run(job, "id", folder)["metrics"])
        weights.append(torch.load(folder / "checkpoint.ckpt", weights_only=True)["state_dict"])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert any("distance/train/input" in line for line in lines)
    assert results[1] == pytest.approx(results[0], rel=1e-3)
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-3, atol=1e-4)


def test_what_changes_rounding_counts_for_identity():
    assert identity("trainer.compile=false") == identity("trainer.channels_last=true") == identity()
    assert identity("trainer.channels_last=false") != identity()
    on = {identity("trainer.compile=true"), identity("trainer.precision=bf16-mixed")}
    assert len(on | {identity()}) == 3


@pytest.mark.parametrize("wrong", ["margin.exact=true", "margin.batch_norm=per_sample"])
def test_what_a_compiled_backward_pass_cannot_do_is_refused(wrong):
    with pytest.raises(ConfigError, match=rf"^trainer\.compile=true is not allowed with {wrong}: [^.]*\.$"):
        prepare_run(config("trainer.compile=true", wrong))
    assert prepare_run(config("trainer.compile=true", "method=xent", wrong))
