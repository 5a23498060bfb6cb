"""CIFAR-10 from real files: known counts and means, both versions alike, damage found."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from lmsweep.data import cifar10, prepare
from lmsweep.errors import UserError
from lmsweep.files import DamagedError

BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def source(cifar_root):
    return cifar10.load(str(cifar_root))


def test_real_cifar10_has_its_known_counts_and_moments(source):
    assert source.pool.y.bincount().tolist() == [5000] * 10
    assert source.test.y.bincount().tolist() == [1000] * 10
    assert source.pool.x.shape == (50_000, 3, 32, 32)
    assert source.pool.x.dtype == torch.uint8
    levels = np.arange(256) / 255
    counts = [np.bincount(source.pool.x[:, channel].numpy().ravel(), minlength=256) for channel in range(3)]
    means = [np.average(levels, weights=count) for count in counts]
    squares = [np.average(levels**2, weights=count) for count in counts]
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    stds = [np.sqrt(square - mean**2) for square, mean in zip(squares, means, strict=True)]
    assert stds == pytest.approx([0.2470, 0.2435, 0.2616], abs=5e-5)
    # A frog, two trucks, a deer and a car, as in the python version.
    assert source.pool.y[:5].tolist() == [6, 9, 9, 4, 1]
    assert source.test.y[:5].tolist() == [3, 8, 8, 0, 6]


def test_real_cifar10_is_split_as_in_the_paper(source):
    data = prepare(source, seed=0)
    assert [len(part) for part in (data.train, data.val, data.test)] == [45_000, 5_000, 10_000]
    assert len(prepare(source, seed=0, fraction=0.01).train) == 450


@pytest.fixture
def python_version(source, tmp_path, monkeypatch) -> Path:
    """The first images of each real batch in the layout of the python version, with their own checksums."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()

    def write(name: str, content: dict) -> tuple[str, str]:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return name, hashlib.md5(data, usedforsecurity=False).hexdigest()

    def batch(name: str, split, start: int) -> tuple[str, str]:
        x = split.x[start : start + 50].flatten(1).numpy()
        return write(name, {"data": np.array(x), "labels": split.y[start : start + 50].tolist()})

    train = [batch(name, source.pool, 10_000 * number) for number, name in enumerate(BATCHES)]
    monkeypatch.setattr(CIFAR10, "train_list", train)
    monkeypatch.setattr(CIFAR10, "test_list", [batch("test_batch", source.test, 0)])
    name, md5 = write("batches.meta", {"label_names": [str(label) for label in range(10)]})
    monkeypatch.setattr(CIFAR10, "meta", {"filename": name, "key": "label_names", "md5": md5})
    return tmp_path


def test_the_python_version_gives_the_same_images_in_the_same_order(source, python_version):
    read = cifar10.load(str(python_version))
    first = torch.cat([torch.arange(50) + 10_000 * number for number in range(5)])
    assert torch.equal(read.pool.x, source.pool.x[first])
    assert torch.equal(read.pool.y, source.pool.y[first])
    assert torch.equal(read.test.x, source.test.x[:50])


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_changed_file_of_the_python_version_is_found_before_it_is_unpickled(python_version, name):
    path = python_version / "cifar-10-batches-py" / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedError, match=name):
        cifar10.load(str(python_version))


@pytest.mark.parametrize("damage", ["cut short", "changed"])
def test_a_damaged_file_of_the_binary_version_is_never_used(cifar_root, tmp_path, damage):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for path in (cifar_root / "cifar-10-batches-bin").iterdir():
        if path.name != "data_batch_2.bin":
            (folder / path.name).symlink_to(path)
    data = bytearray((cifar_root / "cifar-10-batches-bin" / "data_batch_2.bin").read_bytes())
    if damage == "cut short":
        del data[-3073:]
    else:
        data[3073] = (data[3073] + 1) % 10  # the second label
    (folder / "data_batch_2.bin").write_bytes(data)
    with pytest.raises(DamagedError, match=r"data_batch_2\.bin"):
        cifar10.load(str(tmp_path))


def test_missing_files_that_cannot_be_downloaded_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")  # nobody listens there
    with pytest.raises(UserError) as caught:
        cifar10.load(str(tmp_path))
    sentence = str(caught.value)
    parts = ("data_batch_1", "cifar-10-batches-bin", str(tmp_path / "cifar-10-batches-py"), "data=digits")
    assert all(part in sentence for part in parts)
    assert list(tmp_path.iterdir()) == []
