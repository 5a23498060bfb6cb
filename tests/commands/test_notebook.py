"""`import lmsweep` as scripts do (docs/analyse.md), and what it says about mistakes."""

import pytest

import lmsweep
from lmsweep.commands.notebook import overrides
from lmsweep.errors import ConfigError

TINY = {"max_steps": 2, "val_every": 2, "batch_size": 8}


def test_a_run_is_that_of_the_command_line_and_is_kept(tmp_path):
    one = lmsweep.run(method="xent", seed=3, trainer=TINY, outputs=str(tmp_path), **{"model.width": 2})
    assert one.folder == tmp_path / "runs" / one.id
    assert (one.config.seed, one.config.model.arguments["width"]) == (3, 2)
    again = lmsweep.run(method="xent", seed=3, trainer=TINY, model={"width": 2}, outputs=str(tmp_path))
    assert (again.id, again.metrics) == (one.id, one.metrics)
    table = lmsweep.results(tmp_path)
    assert table.set_index("run").loc[one.id, "test_accuracy"] == one.metrics["test_accuracy"]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [({"method": "nope"}, "method=nope is not allowed"), ({"margin.gama": 1}, "There is no key margin.gama")],
)
def test_mistakes_are_told_in_one_sentence(keys, sentence):
    with pytest.raises(ConfigError) as refused:
        lmsweep.run(**keys)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="figure=fig99 is not allowed"):
        lmsweep.sweep("fig99")


def test_values_are_written_as_on_the_command_line():
    keys = {"seed": "0,1", "margin": {"gamma": [0.5, 1.0], "clip": None, "exact": True}}
    assert overrides(keys) == [
        "seed=0,1",
        "margin.gamma=[0.5, 1.0]",
        "margin.clip=null",
        "margin.exact=true",
    ]


def test_the_package_of_sweeps_is_still_a_package():
    from lmsweep.sweep.plan import Plan

    assert lmsweep.sweep.plan.Plan is Plan
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = lmsweep.nothing
