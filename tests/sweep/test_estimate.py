"""How long a sweep will take."""

import json

import pytest

from lmsweep.commands.jobs import cost_key, training_job
from lmsweep.store.store import Store
from lmsweep.sweep.estimate import Seconds, _wall, estimate, past_seconds
from lmsweep.sweep.plan import Plan
from lmsweep.training.run import prepare_run, probe_seconds, run
from tests.config.test_run import config


def test_what_does_not_cost_time_does_not_count():
    key = cost_key(config())
    for free in ("seed=3", "data.label_noise=0.4", "data.fraction=0.1", "margin.gamma=9", "optimizer.lr=1"):
        assert cost_key(config(free)) == key
    others = ("method=xent", "margin.layers=input", "margin.top_k=1", "trainer.max_steps=9", "model.width=3")
    assert len({key, *(cost_key(config(other)) for other in others)}) == len(others) + 1


def finished(store, name, key, seconds):
    store.lease(name, {}).finish({"cost_key": key, "seconds": seconds, "metrics": {}})


def test_past_runs_say_how_long_the_next_ones_take(tmp_path):
    store = Store(tmp_path)
    plan = Plan.of([training_job(config(f"seed={seed}", f"outputs={tmp_path}")) for seed in (0, 1)])
    key = cost_key(config())
    for name, seconds in (("a", 1.0), ("b", 100.0), ("c", 3.0)):
        finished(store, name, key, seconds)
    finished(store, "d", "other", 50.0)
    store.lease("e", {})
    store.lease("f", {}).finish({"cost_key": key, "seconds": 900.0, "metrics": {}, "machine": "another"})
    # Three runs are too few to say how much they differ, one all the more.
    assert past_seconds(store) == {key: Seconds(3.0, 1.0, 100.0), "other": Seconds(50.0, 35.0, 65.0)}
    assert estimate(plan, plan.asked, [{}]) == dict.fromkeys(plan.asked, Seconds(3.0, 1.0, 100.0))


def test_many_runs_say_between_which_values_the_next_one_lies():
    one = Seconds.of(range(1, 102))
    assert one == Seconds(51.0, 11.0, 91.0)
    assert Seconds.total([one, one], [1.0, 3.0]) == Seconds(204.0, 44.0, 364.0)
    assert Seconds(3600.0, 360.0, 7e5).hours() == "1.0 (0.1 to 194)"


def test_runs_go_to_the_next_free_worker():
    assert _wall({"a": 5, "b": 1, "c": 1, "d": 1}, 2) == 5
    assert _wall({"a": 5, "b": 1, "c": 1, "d": 1}, 1) == 8
    assert _wall({}, 3) == 0


def test_a_probe_comes_near_the_real_time_and_leaves_nothing(tmp_path, clock_of_samples):
    one = config("method=xent", "trainer.max_steps=300", "trainer.val_every=100", f"outputs={tmp_path}")
    guess = probe_seconds(one)
    assert not list(tmp_path.iterdir())
    before = clock_of_samples.monotonic()
    run(prepare_run(one), "id", tmp_path)
    assert guess == pytest.approx(clock_of_samples.monotonic() - before, rel=0.1)
    assert json.dumps(guess)
