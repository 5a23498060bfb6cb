"""How one number came about, told of the golden store."""

import pytest

from lmsweep.errors import UserError
from lmsweep.figures.make import explain
from tests.figures.test_make import sweep  # noqa: F401 - a fixture


def test_a_number_is_explained_from_its_runs_to_its_verdicts(sweep):  # noqa: F811
    told = list(explain(sweep, "margin_l2_all", 0.4))
    assert told[0] == "Noisy labels: margin_l2_all at 40% is 79.3% [76.5, 82.2]"
    assert "95% interval by Student's t" in told[1]
    assert told[2] == "  Of each run the weights with the best validation accuracy."
    runs = [config for config in sweep.runs.values() if config.method_name() == "margin_l2_all"]
    mine = {c.seed: c.id for c in runs if c.margin.gamma == 1 and c.data.label_noise == 0.4}
    values = {0: ("78.0%", "55.00%"), 1: ("80.0%", "57.00%"), 2: ("80.0%", "56.00%")}
    assert told[3:6] == [
        f"  seed {seed}: {y}, validation {val}, run {mine[seed]}" for seed, (y, val) in values.items()
    ]
    # Gamma 2 is better on test data, and is not chosen.
    assert told[7].startswith('  chosen: {"margin.gamma": 1.0')
    assert told[7].endswith("mean validation 56.00% of 3 seeds")
    assert told[8].startswith('  not chosen: {"margin.gamma": 2.0')
    assert "claim margin_wins, holds: The margin wins" in told
    assert not any(line.startswith("claim hinge") for line in told)


@pytest.mark.parametrize(("method", "x", "allowed"), [("hinges", 0.4, "hinge"), ("xent", 0.5, "0, 0.4")])
def test_what_the_figure_does_not_have_is_told_with_what_it_has(sweep, method, x, allowed):  # noqa: F811
    with pytest.raises(UserError, match=f"it must be one of .*{allowed}"):
        list(explain(sweep, method, x))
