"""The worked example of the documentation: an attack outside the package, known by the name of its module."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.attacks import attack_curve
from lmsweep.config.evaluation import EvaluationConfig, parse_as
from lmsweep.config.hydra import config_folder
from lmsweep.errors import ConfigError

MODULE = '''
"""Less light: every pixel is multiplied by 1 - amount. No network and no random number is asked."""

from lmsweep.attacks import Attack, Strengths, unsettled


class Darkness(Attack):
    seeded = False
    transfers = False
    unit = "share of light lost"

    amounts: Strengths

    @property
    def strengths(self):
        return self.amounts

    def examples(self, model, clean, *, seed, early_stop):
        for amount in self.amounts:
            yield unsettled(clean.x * (1 - amount))
'''
YAML = "kind: their_attacks.darkness\namounts: [0.0, 0.5, 1.0]\n"


@pytest.fixture
def evaluation(tmp_path, monkeypatch):
    """Ask for an evaluation, with an attack and its configuration in a folder of the user's."""
    package = tmp_path / "their_attacks"
    (tmp_path / "conf" / "attack").mkdir(parents=True)
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "darkness.py").write_text(MODULE)
    (package / "empty.py").touch()
    (tmp_path / "conf" / "attack" / "darkness.yaml").write_text(YAML)
    monkeypatch.syspath_prepend(tmp_path)

    def ask(*overrides: str) -> EvaluationConfig:
        search = f"hydra.searchpath=[file://{tmp_path / 'conf'}]"
        with initialize_config_dir(config_folder(), version_base="1.3"):
            composed = compose("evaluation", ["runs=[a]", "attack=darkness", search, *overrides])
        return parse_as(EvaluationConfig, OmegaConf.to_container(composed, resolve=True))

    return ask


def test_an_attack_of_ones_own_is_found_checked_and_measured(evaluation, net, test_set):
    config = evaluation("attack.amounts=[0,1]")
    curve = attack_curve(net, [test_set], config.attack)
    assert curve.accuracy[0] == curve.to_dict()["clean_accuracy"]
    assert curve.accuracy[1] < 0.2, "black images are all the same"
    assert config.attack.unit == "share of light lost"


def test_its_own_keys_are_its_identity(evaluation):
    identity = evaluation().identity_dict(transfer=False)
    assert identity["attack"] == {"kind": "their_attacks.darkness", "amounts": [0.0, 0.5, 1.0]}
    assert "seed" not in identity
    assert evaluation("seed=3").identity_dict(transfer=False) == identity


def test_its_errors_are_as_clear_as_those_of_the_package(evaluation):
    with pytest.raises(
        ConfigError, match=r"^attack\.amounts=-1 is not allowed: it must be a list of numbers"
    ):
        evaluation("attack.amounts=[-1]")
    with pytest.raises(ConfigError, match=r"^There is no key attack\.alpha; attack has amounts\.$"):
        evaluation("+attack.alpha=0.1")
    with pytest.raises(ConfigError, match=r"^attack\.kind=their_attacks\.empty .*no attack is defined there"):
        evaluation("attack.kind=their_attacks.empty")
