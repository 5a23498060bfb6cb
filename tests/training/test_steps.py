"""Our loop over steps calls the same hooks and leaves the same files as Lightning's own."""

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop

from lmsweep.training.checkpoint import load_checkpoint
from lmsweep.training.fit import StepLoop
from lmsweep.training.run import prepare_run, run
from tests.config.test_run import config

SHORT = ("model.width=2", "trainer.max_steps=13", "trainer.val_every=5", "trainer.log_every=3")
SETTINGS = {
    "margin": ("method=margin",),
    "margin at the input": ("method=margin", "margin.layers=everything"),
    "clipped, with dropout": ("method=xent", "model.dropout=0.3", "trainer.gradient_clip=0.5"),
    "a schedule and bfloat16": ("method=xent", "schedule=one_cycle", "trainer.precision=bf16-mixed"),
    "float64": ("method=xent", "trainer.precision=64-true"),
    "adversarial": ("method=xent", "adversarial=fgsm"),
    "parseval": ("method=parseval",),
}
HOOKS = (
    *("on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward"),
    *("on_before_optimizer_step", "on_train_batch_end"),
)


class Witness(pl.Callback):
    """Notes every hook of a step, and logs what it sees there."""

    def __init__(self):
        self.seen = []


def note(hook):
    def called(self, trainer, module, *arguments):
        self.seen.append((hook, trainer.global_step, len(arguments)))
        gradients = [p.grad.abs().sum() for p in module.parameters() if p.grad is not None]
        module.log(f"seen/{hook}", sum(gradients) if gradients else -1.0)

    return called


for name in HOOKS:
    setattr(Witness, name, note(name))


def trained(folder, overrides):
    """What a run leaves and what a callback saw of it."""
    witness, job = Witness(), prepare_run(config(*SHORT, *overrides))
    job.callbacks = [witness]
    folder.mkdir()
    results = run(job, "id", folder)
    return witness.seen, folder.joinpath("metrics.jsonl").read_text(), results["metrics"], weights(folder)


def weights(folder):
    return load_checkpoint(folder / "last.ckpt")["state_dict"]


@pytest.mark.parametrize("overrides", SETTINGS.values(), ids=SETTINGS)
def test_hooks_records_and_weights_are_those_of_lightnings_loop(overrides, tmp_path, monkeypatch):
    ours = trained(tmp_path / "ours", overrides)
    monkeypatch.setattr(StepLoop, "advance", _TrainingEpochLoop.advance)
    theirs = trained(tmp_path / "theirs", overrides)
    assert ours[:3] == theirs[:3]
    assert len(ours[0]) == 13 * len(HOOKS)
    assert all(torch.equal(ours[3][key], value) for key, value in theirs[3].items())


def test_a_checkpoint_counts_what_lightnings_counts(tmp_path, monkeypatch):
    """So that either loop goes on where the other one stopped."""
    loops = []
    for advance in (StepLoop.advance, _TrainingEpochLoop.advance):
        monkeypatch.setattr(StepLoop, "advance", advance)
        saved = []
        monkeypatch.setattr(Witness, "on_save_checkpoint", lambda *a, kept=saved: kept.append(a[-1]["loops"]))
        trained(tmp_path / str(len(loops)), SETTINGS["margin"])
        loops.append(saved)
    assert len(loops[0]) == 2
    assert loops[0] == loops[1]
