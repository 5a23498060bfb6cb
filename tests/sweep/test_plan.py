"""Which runs a grid asks for."""

import pytest

from lmsweep.config.request import Request
from lmsweep.errors import ConfigError
from lmsweep.sweep.plan import Plan
from tests.config.test_run import config


def test_equal_runs_are_planned_once_and_every_job_knows_its_run(tmp_path):
    store = f"outputs={tmp_path}"
    jobs = [("method=xent", f"margin.gamma={g}", f"seed={s}", store) for g in (1, 2) for s in (0, 1)]
    plan = Plan.of([config(*job) for job in jobs])
    assert len(plan.jobs) == 4
    assert len(plan.runs) == 2
    assert plan.jobs[:2] == plan.jobs[2:]
    assert plan.cells == 1
    assert plan.counts(Request()) == {"missing": 2}
    plan.store.claim(plan.jobs[0], {}).finish({"metrics": {}})
    assert plan.counts(Request()) == {"missing": 1, "cached": 1}
    assert plan.about()[plan.jobs[1]]["seed"] == 1


def test_one_store_per_sweep():
    with pytest.raises(ConfigError, match="outputs cannot be swept"):
        Plan.of([config("outputs=a"), config("outputs=b", "seed=1")])
