"""The callback on a module written without knowledge of it, in every way Lightning trains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn

from lmsweep.margin import MarginLoss, margin_distance, margin_loss
from tests.margin.lightning_module_without_margins import (
    BATCH,
    OPTIONS,
    SCALE,
    ModuleWithoutMargins,
    by_hand,
    data,
    loader,
    parameters,
    trainer,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def reference() -> torch.Tensor:
    return by_hand()


def assert_same(module, reference):
    torch.testing.assert_close(parameters(module), reference, atol=1e-6, rtol=0)


def test_one_process_equals_the_loop_by_hand(reference):
    module = ModuleWithoutMargins()
    trainer().fit(module, loader())
    assert_same(module, reference)


def test_the_margin_matters():
    """A check of the check: without the callback the parameters are others."""
    module = ModuleWithoutMargins()
    trainer(callbacks=[]).fit(module, loader())
    assert (parameters(module) - by_hand()).abs().max() > 1e-3


def test_exact_mode_equals_the_loop_by_hand():
    module = ModuleWithoutMargins()
    trainer(callbacks=[MarginLoss("everything", 0.5, exact=True, **OPTIONS)]).fit(module, loader())
    assert_same(module, by_hand(exact=True))


NOT_DEFAULT = {
    "norm": 1.5,
    "gamma": [0.5, 1.0, 2.0],
    "top_k": 2,
    "aggregation": "sum",
    "epsilon": 0.3,
    "clip": 1.5,
    "exact": True,
    "score": "softmax",
    "layer_reduction": "mean",
    "layer_weights": [1.0, 2.0, 3.0],
}


@pytest.mark.parametrize("option", NOT_DEFAULT)
def test_every_option_reaches_the_loss(option):
    base = {"aggregation": "sum"} if option == "top_k" else {}  # the largest term is among the best scored
    chosen = {**base, option: NOT_DEFAULT[option]}
    with_option, without = ModuleWithoutMargins(), ModuleWithoutMargins()
    x, y = next(iter(loader()))
    callback = MarginLoss("all", 1.0, **chosen)
    callback._names = callback.check(with_option)
    conv = without.conv(x)
    head = without.head(conv)
    logits = without.last(head)
    expected = F.cross_entropy(logits, y) + margin_loss(logits, y, [conv, head, logits], **chosen)
    plain = F.cross_entropy(logits, y) + margin_loss(logits, y, [conv, head, logits], **base)
    with_option.trainer = trainer()
    loss = callback._wrap(with_option, with_option.training_step)((x, y), 0)
    ours = torch.autograd.grad(loss, list(with_option.parameters()))
    theirs = torch.autograd.grad(expected, list(without.parameters()), retain_graph=True)
    others = torch.autograd.grad(plain, list(without.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert any(not torch.allclose(a, b) for a, b in zip(ours, others, strict=True)), "the option must matter"


def test_per_sample_batch_norm_reaches_the_class_gradients():
    class Normed(ModuleWithoutMargins):
        def __init__(self):
            super().__init__()
            self.conv.append(nn.BatchNorm2d(3))

    plain, clean = Normed(), Normed()
    trainer().fit(plain, loader())
    options = {**OPTIONS, "batch_norm": "per_sample"}
    trainer(callbacks=[MarginLoss("everything", 0.5, **options)]).fit(clean, loader())
    assert (parameters(plain) - parameters(clean)).abs().max() > 1e-5


def test_an_encoder_before_forward_still_learns():
    class Encoded(ModuleWithoutMargins):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Conv2d(1, 1, 1)

        def training_step(self, batch, batch_idx):
            return super().training_step((self.encoder(batch[0]), batch[1]), batch_idx)

    module = Encoded()
    before = module.encoder.weight.clone()
    trainer(callbacks=[MarginLoss(["input", "output"], 0.5, **OPTIONS)]).fit(module, loader())
    assert (module.encoder.weight - before).abs().max() > 1e-4


def test_forward_may_take_keywords_work_in_place_and_run_without_gradients(reference):
    class Unusual(ModuleWithoutMargins):
        def forward(self, *, x):
            return super().forward(x.mul_(1.0))

        def training_step(self, batch, batch_idx):
            loss = F.cross_entropy(self(x=batch[0]), batch[1])
            with torch.no_grad():
                self(x=torch.zeros_like(batch[0]))
            return loss

    module = Unusual()
    trainer().fit(module, loader())
    assert_same(module, reference)


def test_a_step_the_user_had_replaced_is_put_back():
    module = ModuleWithoutMargins()
    own = module.training_step = module.training_step
    trainer().fit(module, loader())
    assert vars(module)["training_step"] is own


def test_gradient_accumulation(reference):
    module = ModuleWithoutMargins()
    trainer(accumulate_grad_batches=4).fit(module, loader(BATCH // 4))
    assert_same(module, reference)


def test_two_processes_of_ddp(reference, tmp_path):
    out = tmp_path / "parameters.pt"
    subprocess.run(
        [sys.executable, "-m", "tests.margin.lightning_module_without_margins", str(out), "2"],
        check=True,
        timeout=600,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    torch.testing.assert_close(torch.load(out, weights_only=True), reference, atol=1e-6, rtol=0)


def test_resume_from_a_checkpoint(reference, tmp_path):
    keep = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    margin = MarginLoss("everything", 0.5, **OPTIONS)
    undisturbed = ModuleWithoutMargins()
    fit = trainer(max_epochs=3, callbacks=[margin, keep], enable_checkpointing=True)
    fit.fit(undisturbed, loader())
    resumed = ModuleWithoutMargins()
    torch.nn.init.zeros_(resumed.last.weight)  # only the checkpoint can put this right
    trainer(max_epochs=3).fit(resumed, loader(), ckpt_path=tmp_path / "epoch=0.ckpt", weights_only=True)
    assert_same(resumed, parameters(undisturbed))
    assert (parameters(resumed) - reference).abs().max() > 1e-3  # it did go on


def test_a_step_may_return_a_dict_or_nothing(reference):
    module = ModuleWithoutMargins("dict")
    trainer().fit(module, loader())
    assert_same(module, reference)
    before = parameters(ModuleWithoutMargins("none"))
    skipping = ModuleWithoutMargins("none")
    trainer().fit(skipping, loader())
    assert_same(skipping, before)


def test_validation_runs_without_hooks_and_nothing_is_left_behind(reference):
    module = ModuleWithoutMargins()
    trainer(val_check_interval=3).fit(module, loader(), loader())
    assert_same(module, reference)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert "training_step" not in vars(module)


def test_nothing_is_left_behind_after_an_error():
    class Failing(ModuleWithoutMargins):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            raise ArithmeticError("on purpose")

    module = Failing()
    with pytest.raises(ArithmeticError):
        trainer().fit(module, loader())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert "training_step" not in vars(module)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 8), (torch.float16, 11)])
def test_mixed_precision_equals_autocast_by_hand_and_stays_near_full_precision(reference, dtype, bits):
    module = ModuleWithoutMargins()
    fit = trainer(precision="bf16-mixed") if bits == 8 else trainer(plugins=[Float16OnCpu()])
    fit.fit(module, loader())
    assert_same(module, by_hand(dtype))
    # CPUs without instructions for bfloat16 also add up in it. A gradient has six such sums, one per layer
    # for each of the two losses, of up to 256 terms (16 samples at 16 places); rounding errors of 2^-bits per
    # term grow with the square root of their number, and stay the same share of all steps together.
    tolerance = 6 * 256**0.5 * 2.0**-bits
    moved = (reference - parameters(ModuleWithoutMargins())).norm()
    assert (parameters(module) - reference).norm() < tolerance * moved


class Float16OnCpu(pl.plugins.MixedPrecision):
    """Lightning allows float16 with loss scaling on GPUs only; torch runs both on a CPU as well."""

    def __init__(self):
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=SCALE))


def test_layers_compiled_one_by_one(reference):
    module = ModuleWithoutMargins()
    module.conv = torch.compile(module.conv, backend="aot_eager")
    module.head = torch.compile(module.head, backend="aot_eager")
    trainer().fit(module, loader())
    assert_same(module, reference)


def test_a_compiled_whole_is_refused_with_advice_and_input_and_output_still_work():
    with pytest.raises(ValueError, match=r"torch.compile hides conv, head: compile the layers one by one"):
        trainer().fit(torch.compile(ModuleWithoutMargins(), backend="aot_eager"), loader())
    ends = [MarginLoss(["input", "output"], 0.5, **OPTIONS)]
    plain, compiled = ModuleWithoutMargins(), ModuleWithoutMargins()
    trainer(callbacks=ends).fit(plain, loader())
    compiled.forward = torch.compile(compiled.forward, backend="aot_eager")
    trainer(callbacks=ends).fit(compiled, loader())
    assert_same(compiled, parameters(plain))


def test_errors_name_what_is_wrong():
    class Silent(ModuleWithoutMargins):
        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self.last(self.head(self.conv(batch[0]))), batch[1])

    with pytest.raises(RuntimeError, match=r"Silent never called self\(...\)"):
        trainer().fit(Silent(), loader())

    class Unused(ModuleWithoutMargins):
        def __init__(self):
            super().__init__()
            self.aside = nn.Linear(36, 2)

        def forward(self, x):
            self.aside(x.flatten(1))
            return super().forward(x)

    with pytest.raises(ValueError, match="do not depend on aside"):
        trainer(callbacks=[MarginLoss("aside")]).fit(Unused(), loader())

    class NeverRun(Unused):
        def forward(self, x):
            return ModuleWithoutMargins.forward(self, x)

    with pytest.raises(RuntimeError, match="did not run aside"):
        trainer(callbacks=[MarginLoss("aside")]).fit(NeverRun(), loader())

    class ByHand(ModuleWithoutMargins):
        automatic_optimization = False

    with pytest.raises(ValueError, match="ByHand optimises by hand"):
        trainer().fit(ByHand(), loader())

    class Taught(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
            self.teacher = nn.Linear(36, 4)

        training_step = ModuleWithoutMargins.training_step
        returns = "loss"
        configure_optimizers = ModuleWithoutMargins.configure_optimizers

        def forward(self, x):
            return self.net(x)

    with pytest.raises(RuntimeError, match="net gives the logits"):
        trainer().fit(Taught(), loader())
    with pytest.raises(ValueError, match="layer_reduction='maen'"):
        MarginLoss(layer_reduction="maen")
    with pytest.raises(ValueError, match="gamma has 2 values for the layers conv, head, output"):
        trainer(callbacks=[MarginLoss("all", gamma=[1.0, 2.0])]).fit(ModuleWithoutMargins(), loader())
    too_large = MarginLoss("all", targets=lambda batch: batch[1] + 4)
    with pytest.raises(ValueError, match=r"targets has the class \d, and the logits have 4 classes"):
        trainer(callbacks=[too_large]).fit(ModuleWithoutMargins(), loader())


def test_targets_are_found_where_the_user_says():
    class DictBatches(ModuleWithoutMargins):
        def training_step(self, batch, batch_idx):
            return super().training_step((batch["image"], batch["label"]), batch_idx)

    def collate(samples):
        x, y = torch.utils.data.default_collate(samples)
        return {"image": x, "label": y}

    batches = torch.utils.data.DataLoader(data(), BATCH, collate_fn=collate)
    module = DictBatches()
    callback = MarginLoss("everything", 0.5, targets=lambda batch: batch["label"], **OPTIONS)
    trainer(callbacks=[callback]).fit(module, batches)
    assert_same(module, by_hand())


def test_candidates_by_distance_use_the_last_layer():
    options = {**OPTIONS, "top_k": 1}
    module = ModuleWithoutMargins()
    trainer(callbacks=[MarginLoss("output", 0.5, candidates="distance", **options)]).fit(module, loader())
    net = ModuleWithoutMargins()
    optimizer = net.configure_optimizers()
    for x, y in loader():
        logits = net(x)
        optimizer.zero_grad()
        extra = margin_loss(logits, y, [logits], last_layer=net.last.weight, **options)
        (F.cross_entropy(logits, y) + 0.5 * extra).backward()
        optimizer.step()
    assert_same(module, parameters(net))


def test_telemetry_says_what_the_loss_saw(tmp_path):
    module = ModuleWithoutMargins()
    logger = CSVLogger(tmp_path)
    callback = MarginLoss("all", 0.5, norm=2, gamma=[0.1, 0.5, 2.0], clip=1.5)
    trainer(max_steps=1, logger=logger, log_every_n_steps=1, callbacks=[callback]).fit(module, loader())
    row = read_csv_row(Path(logger.log_dir) / "metrics.csv")

    net = ModuleWithoutMargins()
    x, y = next(iter(loader()))
    conv = net.conv(x)
    head = net.head(conv)
    logits = net.last(head)
    distance = margin_distance(logits, y, [conv, head, logits]).amin(1)
    for index, (name, gamma) in enumerate([("conv", 0.1), ("head", 0.5), ("output", 2.0)]):
        d = distance[:, index]
        assert row[f"margin/distance/{name}"] == pytest.approx(d.mean().item(), rel=1e-5)
        assert row[f"margin/above_gamma/{name}"] == pytest.approx((d > gamma).float().mean().item())
        assert row[f"margin/at_clip/{name}"] == pytest.approx(
            (gamma - d >= 1.5 * gamma).float().mean().item()
        )
        assert row[f"margin/loss/{name}"] == pytest.approx(
            (gamma - d).clamp(0, 1.5 * gamma).mean().item(), rel=1e-5
        )
        assert row[f"margin/flat/{name}"] == 0
    assert row["margin/saturated"] == 0


def test_telemetry_reports_flat_gradients_and_saturation(tmp_path):
    module = ModuleWithoutMargins()
    with torch.no_grad():
        module.last.weight.mul_(1e4)
        module.last.bias.copy_(torch.tensor([1e4, 0.0, 0.0, 0.0]))
        module.conv[0].bias.fill_(-100.0)  # every unit dead
    logger = CSVLogger(tmp_path)
    fit = trainer(max_steps=1, logger=logger, log_every_n_steps=1, callbacks=[MarginLoss("all", clip=2.0)])
    fit.fit(module, loader())
    row = read_csv_row(Path(logger.log_dir) / "metrics.csv")
    assert row["margin/saturated"] == 1
    assert row["margin/flat/conv"] == 0
    assert row["margin/flat/head"] == 0
    with torch.no_grad():
        module.head[1].weight.zero_()  # now nothing before the head reaches the logits
    logger = CSVLogger(tmp_path, version="second")
    trainer(max_steps=1, logger=logger, log_every_n_steps=1, callbacks=[MarginLoss("conv")]).fit(
        module, loader()
    )
    assert read_csv_row(Path(logger.log_dir) / "metrics.csv")["margin/flat/conv"] == 1


def read_csv_row(path: Path) -> dict[str, float]:
    head, row, *_ = path.read_text().splitlines()
    return {k: float(v) for k, v in zip(head.split(","), row.split(","), strict=True) if v}


def test_no_step_reads_a_value_back_from_the_device():
    """`.item()`, `float()` and `bool()` of a tensor wait for a GPU; the loss must not do that."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        synchronising = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
                Count.synchronising += 1
            return func(*args, **(kwargs or {}))

    net = ModuleWithoutMargins()
    x, y = next(iter(loader()))
    x.requires_grad_()
    conv = net.conv(x)
    logits = net.last(net.head(conv))
    with Count():
        for options in (
            {},
            {"top_k": 1, "last_layer": net.last.weight},
            {"gamma": [1.0, 2.0], "exact": True},
        ):
            margin_loss(logits, y, [x, conv], norm=1.5, clip=2.0, **options)
    assert Count.synchronising == 0
