"""Real data where it lies on this machine: LMSWEEP_DATA, or shared/data beside the checkout."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


def real(folder: str) -> Path:
    root = Path(os.environ.get("LMSWEEP_DATA") or BESIDE)
    if not (root / folder).is_dir():
        pytest.skip(f"there is no {folder} in LMSWEEP_DATA or shared/data beside the checkout")
    return root


@pytest.fixture(scope="session")
def mnist_root() -> Path:
    return real("MNIST/raw")


@pytest.fixture(scope="session")
def cifar_root() -> Path:
    return real("cifar-10-batches-bin")
