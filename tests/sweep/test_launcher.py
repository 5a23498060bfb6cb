"""Hydra's own suite of tests for launchers, on other applications than ours."""

import pytest
from hydra import version
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

from tests.sweep import with_plugins


@pytest.fixture(autouse=True)
def _registered(hydra_restore_singletons):
    version.setbase("1.1")  # what the suite was written for; other tests set another one
    with_plugins.register()


@pytest.mark.parametrize(("launcher_name", "overrides"), [("lmsweep", [])])
class TestLauncher(LauncherTestSuite):
    """Jobs, their configurations and their folders are what Hydra promises."""


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("lmsweep", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2"])]
)
class TestBatches(BatchedSweeperTestSuite):
    """Several launches of one launcher."""


@pytest.mark.slow
@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=lmsweep"])])
class TestApplications(IntegrationTestSuite):
    """Whole scripts, in processes of their own."""

    def generate_custom_cmd(self):
        return lambda cmd, _filename: [cmd[0], with_plugins.__file__, *cmd[1:]]
