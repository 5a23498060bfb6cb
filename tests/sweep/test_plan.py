"""Which runs a grid asks for."""

import pytest

from lmsweep.commands.jobs import training_job
from lmsweep.config.run import Request
from lmsweep.errors import ConfigError
from lmsweep.sweep.plan import Plan
from tests.config.test_run import config


def test_equal_runs_are_planned_once_and_every_job_knows_its_run(tmp_path):
    store = f"outputs={tmp_path}"
    jobs = [("method=xent", f"margin.gamma={g}", f"seed={s}", store) for g in (1, 2) for s in (0, 1)]
    plan = Plan.of([training_job(config(*job)) for job in jobs])
    assert len(plan.asked) == 4
    assert len(plan.jobs) == 2
    assert plan.asked[:2] == plan.asked[2:]
    assert len({job.cell for job in plan.jobs.values()}) == 1
    assert set(plan.states(Request()).values()) == {"missing"}
    plan.store.lease(plan.asked[0], {}).finish({"metrics": {}})
    assert plan.states(Request()) == dict(zip(plan.asked[:2], ("done", "missing"), strict=True))
    assert plan.about()[plan.asked[1]]["seed"] == 1


def test_one_store_per_sweep():
    with pytest.raises(ConfigError, match="outputs cannot be swept"):
        Plan.of([training_job(config("outputs=a")), training_job(config("outputs=b", "seed=1"))])
