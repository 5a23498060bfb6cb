"""A store that somebody sent runs no code of theirs."""

import json
import shutil

import pytest
import torch
import yaml

from lmsweep.config.run import parse
from lmsweep.errors import UserError
from lmsweep.evaluation.measure import load_run
from lmsweep.evaluation.runs import find_run
from tests.evaluation.test_commands import command

FORGED = {
    "os.system": ("data.source", {"command": "touch {mark}"}),
    "subprocess.getoutput": ("model", {"cmd": "touch {mark}"}),
    "subprocess.check_output": ("schedule", {"warmup": 0, "args": ["touch", "{mark}"]}),
    "torch.optim.SGD": ("schedule", {"warmup": 0}),
    "builtins.exec": ("model", {"source": "open('{mark}', 'w')"}),
    "tests.evaluation.tiny.load": ("data.source", {}),
    # On the allow-list by name, and yet neither network nor data set.
    "lmsweep.files.write_atomically": ("model", {"path": "{mark}", "data": "x"}),
    "lmsweep.processes.value_of": ("data.source", {}),
    "torch.nn.functional.relu": ("optimizer", {}),
    "lmsweep.__main__.main": ("model", {}),
}


def forge(outputs, name, store, target, key, arguments):
    """A copy of a run whose configuration names another target; its folder has the id that it should."""
    config = yaml.safe_load((outputs / "runs" / name / "config.yaml").read_text())
    node = config["data"] if key == "data.source" else config
    last = key.rpartition(".")[2]
    known = {k: v for k, v in node[last].items() if k in ("name", "lr", "weight_decay") or "decay" in k}
    node[last] = {**(known if last != "source" else {}), "_target_": target, **arguments}
    forged = store / "runs" / parse(config).id
    shutil.copytree(outputs / "runs" / name, forged)
    (forged / "config.yaml").write_text(yaml.safe_dump(config))
    for file, changes in (("status.json", {"files": {}}), ("results.json", {"id": forged.name})):
        content = {**json.loads((forged / file).read_text()), **changes}
        content.pop("checksum")  # as a store of an earlier version
        (forged / file).write_text(json.dumps(content))
    return forged.name


@pytest.mark.parametrize("target", FORGED)
def test_a_forged_target_is_refused_before_it_is_called(runs, tmp_path, target):
    outputs, ids = runs
    mark = tmp_path / "mark"
    key, arguments = FORGED[target]
    filled = yaml.safe_load(yaml.safe_dump(arguments).replace("{mark}", str(mark)))
    name = forge(outputs, ids["xent0"], tmp_path, target, key, filled)
    with pytest.raises(UserError, match="is not called") as refused:
        load_run(find_run(tmp_path, name), "data", torch.device("cpu"))
    assert f"{key}._target_={target}" in str(refused.value)
    assert not mark.exists()


def test_the_command_names_the_target_and_how_to_trust_it(runs, tmp_path):
    outputs, ids = runs
    mark = tmp_path / "mark"
    name = forge(outputs, ids["xent0"], tmp_path, "os.system", "data.source", {"command": f"touch {mark}"})
    done = command("attack", name, "attack=fgsm", outputs=tmp_path)
    assert done.returncode == 1
    assert "data.source._target_=os.system of the stored run is not called" in done.stderr
    assert "trust=os" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not mark.exists()
    assert not (tmp_path / "evaluations").exists()
    keys = ("attack=fgsm", "attack.epsilons=[0]", "samples=20", f"root={outputs / 'moved'}")
    for trust in ({"LMSWEEP_TRUST": "another, tests.evaluation"}, {}):
        more = () if trust else ("trust=tests.evaluation",)
        done = command("attack", ids["other_data"], *keys, *more, outputs=outputs, **trust)
        assert done.returncode == 0, done.stderr
