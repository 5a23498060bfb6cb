"""The other ways that ours are compared with compute the same as ours."""

from functools import partial

import pytest

from benchmarks import store, training_loop
from benchmarks.steps import agree, call_per_layer_and_class, cross_entropy, margin, mnist
from lmsweep.figures.collect import run_rows
from lmsweep.store.store import Store, overview
from tests.config.test_run import config


@pytest.mark.parametrize("top_k", [None, 1])
def test_a_call_per_layer_and_class_gives_the_same_loss_and_gradients(top_k):
    setting = mnist(batch=4)
    ours, theirs = partial(margin, setting, top_k), partial(call_per_layer_and_class, setting, top_k)
    agree(setting, {"ours": ours, "theirs": theirs})
    with pytest.raises(RuntimeError, match="do not compute the same"):
        agree(setting, {"ours": ours, "another": partial(cross_entropy, setting)})


@pytest.mark.parametrize("method", ["xent", "margin"])
def test_the_loop_by_hand_trains_the_same_network_bit_for_bit(method):
    overrides = ("model.width=2", "trainer.max_steps=20", "trainer.val_every=10", f"method={method}")
    job = training_loop._job("digits", *training_loop.COMMON, *overrides)
    turns = training_loop.in_turn(job)
    assert len(turns.ours) == len(turns.theirs) == 20
    assert min(turns.ours + turns.theirs) > 0


def test_a_loop_that_trains_something_else_is_no_reference(monkeypatch):
    monkeypatch.setattr(training_loop, "_pixels", lambda x: x * 1.01)
    job = training_loop._job(
        "digits", *training_loop.COMMON, "model.width=2", "trainer.max_steps=3", "trainer.val_every=3"
    )
    with pytest.raises(RuntimeError, match="did not train the same network"):
        training_loop.in_turn(job)


def test_the_invented_store_is_read_like_a_real_one(tmp_path):
    configs = [config(f"seed={seed}", f"outputs={tmp_path}") for seed in range(3)]
    runs = {one.id: one for one in configs}
    store.fill(runs, tmp_path)
    assert [row["state"] for row in overview(tmp_path)] == ["done"] * 3
    assert sorted(run_rows(runs, Store(tmp_path), store.AXES)["seed"]) == [0, 1, 2]
