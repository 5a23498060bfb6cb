"""Sampled classes: drawn evenly, and an estimate of the sum over all classes whose mean is that sum."""

import itertools

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from lmsweep.errors import ConfigError
from lmsweep.margin import MarginLoss, margin_loss
from lmsweep.margin.distance import linearised_margins, sampled_classes
from lmsweep.margin.loss import layer_losses, sample_losses
from lmsweep.seeds import Share
from tests.config.test_run import config
from tests.margin.lightning_module_without_margins import ModuleWithoutMargins, loader, parameters, trainer
from tests.margin.test_loss import case, gradients

CLASSES = 5
EXACT = pytest.mark.parametrize("exact", [False, True])


@EXACT
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [1, 2, float("inf")])
def test_the_mean_over_all_possible_draws_is_the_full_sum_with_its_gradients(norm, k, exact):
    net, x, y = case()
    logits, layers = net(x.clone().requires_grad_())
    options = {"norm": norm, "exact": exact}
    full = margin_loss(logits, y, layers, gamma=2.0, clip=2.0, aggregation="sum", **options)
    losses = []
    for shifts in itertools.combinations(range(1, CLASSES), k):
        sampled = (y.unsqueeze(1) + torch.tensor(shifts)) % CLASSES
        margins = linearised_margins(logits, y, layers, sampled=sampled, **options)
        per_layer = layer_losses(margins, gamma=2.0, aggregation="sum", clip=2.0)
        losses.append(sample_losses(per_layer, "sum").mean())
    mean = torch.stack(losses).mean()
    assert mean.item() == pytest.approx(full.item(), rel=1e-9)
    for ours, expected in zip(gradients(mean, net), gradients(full, net), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


@EXACT
def test_the_mean_over_random_draws_comes_near_the_full_sum(exact):
    net, x, y = case(samples=4)
    logits, layers = net(x.clone().requires_grad_())
    options = {"gamma": 2.0, "aggregation": "sum", "exact": exact}
    full = margin_loss(logits, y, layers, **options)
    generator = torch.Generator().manual_seed(0)
    draws = []
    for _ in range(400):
        loss = margin_loss(logits, y, layers, top_k=1, generator=generator, **options)
        draws.append(torch.cat([loss.detach().view(1), *(g.flatten() for g in gradients(loss, net))]))
    expected = torch.cat([full.detach().view(1), *(g.flatten() for g in gradients(full, net))])
    values = torch.stack(draws)
    error = values.std(0) / len(draws) ** 0.5
    assert ((values.mean(0) - expected).abs() <= 5 * error + 1e-9).all()  # about 140 numbers at 5 sigma
    assert values[:, 0].std() > 0.01 * full.item(), "a check of the check: single draws differ"


@pytest.mark.parametrize("k", [1, 3, 9, 20])
def test_every_other_class_is_drawn_as_often_as_the_next_and_none_twice(k):
    targets = torch.arange(10).repeat(400)
    drawn = sampled_classes(targets, 10, k, torch.Generator().manual_seed(0))
    kept = min(k, 9)
    assert drawn.shape == (4000, kept)
    assert all(len(set(row)) == kept for row in drawn.tolist())
    assert not (drawn == targets.unsqueeze(1)).any()
    counts = torch.stack([(drawn[targets == t].flatten() == c).sum() for t in range(10) for c in range(10)])
    others = counts.view(10, 10)[~torch.eye(10, dtype=torch.bool)].double()
    deviation = (400 * kept / 9 * (1 - kept / 9)) ** 0.5  # of a binomial count
    assert ((others - 400 * kept / 9).abs() <= 5 * deviation).all()


def test_processes_that_share_a_batch_draw_what_one_would():
    targets = torch.randint(10, (12,))
    whole = sampled_classes(targets, 10, 2, torch.Generator().manual_seed(3))
    for rank in range(3):
        share = Share(rank, 3)
        mine = sampled_classes(share.of(targets), 10, 2, torch.Generator().manual_seed(3), share)
        assert torch.equal(mine, share.of(whole))


def fitted(seed: int, *callbacks: pl.Callback, start: object = None) -> torch.Tensor:
    module = ModuleWithoutMargins()
    options = {"candidates": "sampled", "top_k": 1, "aggregation": "sum", "gamma": 2.0}
    margin = MarginLoss("everything", 0.5, seed=seed, **options)
    fit = trainer(max_epochs=2, callbacks=[margin, *callbacks], enable_checkpointing=bool(callbacks))
    fit.fit(module, loader(), ckpt_path=start, weights_only=True)
    return parameters(module)


def test_the_seed_and_the_step_decide_so_a_resumed_training_is_the_same_bit_for_bit(tmp_path):
    whole = fitted(1, ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1))
    torch.rand(7)  # the global generator has no part in it
    assert torch.equal(fitted(1, start=tmp_path / "epoch=0.ckpt"), whole)
    assert not torch.equal(fitted(2), whole)


WRONG = {
    "no number": (("margin.top_k=null",), r"margin\.top_k=null .* sampled classes: give the number"),
    "maximum": (("margin.aggregation=max",), r"margin\.aggregation='max' .* use aggregation='sum'\."),
    "no class": (("margin.top_k=0",), r"margin\.top_k=0 is not allowed: it must be a whole number >= 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_sampled_is_refused(name):
    overrides, message = WRONG[name]
    sampled = ("margin.candidates=sampled", "margin.top_k=1", "margin.aggregation=sum")
    with pytest.raises(ConfigError, match=message):
        config(*sampled, *overrides)
    assert config(*sampled).margin.candidates == "sampled"
    assert config("method=xent", "margin.candidates=sampled").method_name() == "xent"


def test_the_functions_refuse_it_too():
    net, x, y = case()
    logits, layers = net(x.clone().requires_grad_())
    with pytest.raises(ValueError, match="top_k=None is not allowed"):
        margin_loss(logits, y, layers, aggregation="sum", generator=torch.Generator())
    with pytest.raises(ValueError, match="aggregation='max' is not allowed"):
        MarginLoss(candidates="sampled", top_k=1)
