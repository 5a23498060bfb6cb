"""A store with a few small trained runs, shared by all tests of evaluations."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from lmsweep.commands.jobs import measurement_job, run_training
from lmsweep.config.evaluation import AuditConfig, EvaluationConfig, parse_as
from lmsweep.config.hydra import config_folder
from lmsweep.config.run import split
from lmsweep.evaluation.jobs import attack_measurements
from lmsweep.store.job import run_job
from tests.evaluation import tiny

TRAINING = ("trainer.max_steps=120", "trainer.val_every=60", "optimizer.lr=0.05", "model.width=8")
FEW = ("attack.epsilons=[0,0.1,0.2]", "attack.alpha=0.05", "samples=120")


def composed(name: str, outputs: Path, *overrides: str):
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return OmegaConf.to_container(compose(name, [f"outputs={outputs}", *overrides]), resolve=True)


def request(outputs: Path, *overrides: str) -> EvaluationConfig:
    return parse_as(EvaluationConfig, composed("evaluation", outputs, *overrides))


def audit_request(outputs: Path, *overrides: str) -> AuditConfig:
    return parse_as(AuditConfig, composed("audit", outputs, *overrides))


def evaluate(config: EvaluationConfig):
    """What `lmsweep attack` measures, in this process: measurement, folder and results of each job."""
    wanted, stored = attack_measurements(config)
    jobs = [measurement_job(one, stored) for one in wanted]
    return [(one, job.folder, run_job(job)) for one, job in zip(wanted, jobs, strict=True)]


def named(ids: dict[str, str], *names: str) -> str:
    return "runs=[" + ",".join(f"'{ids[name]}'" for name in names) + "]"


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Cross-entropy runs of three seeds and a margin run of one cell, and two of no cell with them.

    The data of `other_data` are in `moved` since it was trained.
    """
    outputs = tmp_path_factory.mktemp("store")
    wanted = {
        "xent0": ("method=xent", "seed=0"),
        "xent1": ("method=xent", "seed=1"),
        "xent2": ("method=xent", "seed=2"),
        "margin0": ("method=margin", "margin.norm=inf", "margin.gamma=0.1", "seed=0"),
        "elsewhere": ("method=xent", "seed=2", "data.fraction=0.5"),
        "other_data": ("data.source._target_=tests.evaluation.tiny.load", f"data.root={outputs / 'data'}"),
    }
    tiny.write(outputs / "data")
    ids = {
        name: run_training(split(composed("config", outputs, *TRAINING, *keys))[0])[0].id
        for name, keys in wanted.items()
    }
    (outputs / "data").rename(outputs / "moved")
    return outputs, ids
