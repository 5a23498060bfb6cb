"""MNIST and Fashion-MNIST from real files: known counts and means, damage found, download by HTTP."""

import gzip
import hashlib
import http.server
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
import torchvision

from lmsweep.data import mnist, prepare
from lmsweep.errors import UserError
from lmsweep.files import DamagedError

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@pytest.fixture(scope="module")
def source(mnist_root):
    return mnist.load(str(mnist_root))


def linked(root: Path, place: Path, *, but: str) -> Path:
    """A copy of MNIST by links, without the file `but`."""
    folder = place / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name in NAMES:
        if name != but:
            (folder / name).symlink_to(root / "MNIST" / "raw" / name)
    return folder / but


def test_real_mnist_has_its_known_counts_and_moments(source):
    assert source.pool.y.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert source.test.y.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert source.pool.x.shape == (60_000, 1, 28, 28)
    assert source.pool.x.dtype == torch.uint8
    pixels = source.pool.x.float() / 255
    assert pixels.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert pixels.std().item() == pytest.approx(0.3081, abs=5e-5)
    assert source.pool.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert source.test.y[:5].tolist() == [7, 2, 1, 0, 4]


def test_real_mnist_is_what_torchvision_reads(source, mnist_root):
    for split, train in ((source.pool, True), (source.test, False)):
        reference = torchvision.datasets.MNIST(mnist_root, train=train)
        assert torch.equal(split.x.squeeze(1), reference.data)
        assert torch.equal(split.y, reference.targets)


def test_real_mnist_is_split_as_in_the_paper(source):
    data = prepare(source, seed=0)
    assert [len(part) for part in (data.train, data.val, data.test)] == [55_000, 5_000, 10_000]
    assert len(prepare(source, seed=0, fraction=0.00125).train) == 68
    noisy = prepare(source, seed=0, label_noise=0.8)
    assert noisy.fingerprint["flipped"] == 44_000


def test_packed_files_do_as_well(source, mnist_root, tmp_path):
    missing = linked(mnist_root, tmp_path, but=NAMES[3])
    labels = (mnist_root / "MNIST" / "raw" / NAMES[3]).read_bytes()
    missing.with_name(f"{NAMES[3]}.gz").write_bytes(gzip.compress(labels))
    assert torch.equal(mnist.load(str(tmp_path)).test.y, source.test.y)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_cut_short_is_never_used(mnist_root, tmp_path, name):
    original = (mnist_root / "MNIST" / "raw" / name).read_bytes()
    linked(mnist_root, tmp_path, but=name).write_bytes(original[: len(original) // 2])
    with pytest.raises(DamagedError, match=name):
        mnist.load(str(tmp_path))


def test_one_wrong_label_is_found(mnist_root, tmp_path):
    data = bytearray((mnist_root / "MNIST" / "raw" / NAMES[1]).read_bytes())
    data[1000] = (data[1000] + 1) % 10
    linked(mnist_root, tmp_path, but=NAMES[1]).write_bytes(data)
    with pytest.raises(DamagedError, match="checksum"):
        mnist.load(str(tmp_path))


@pytest.fixture
def mirror(mnist_root, tmp_path, monkeypatch):
    """MNIST's packed files on a web server of our own, which torchvision takes for the official one."""
    served = tmp_path / "mirror"
    served.mkdir()
    sums = []
    for name in NAMES:
        data = gzip.compress((mnist_root / "MNIST" / "raw" / name).read_bytes(), compresslevel=1)
        (served / f"{name}.gz").write_bytes(data)
        sums.append((f"{name}.gz", hashlib.md5(data, usedforsecurity=False).hexdigest()))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(
            torchvision.datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"]
        )
        monkeypatch.setattr(torchvision.datasets.MNIST, "resources", sums)
        yield served
        server.shutdown()


def test_missing_files_are_downloaded(source, mirror, tmp_path, capfd):
    root = tmp_path / "data"
    downloaded = mnist.load(str(root))
    assert torch.equal(downloaded.pool.x, source.pool.x)
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err  # the progress bar
    assert [path.name for path in root.iterdir()] == ["MNIST"]
    (mirror / f"{NAMES[0]}.gz").unlink()
    assert len(mnist.load(str(root)).pool) == 60_000  # from the files alone


def test_a_download_that_breaks_off_leaves_nothing(mirror, tmp_path):
    packed = mirror / f"{NAMES[2]}.gz"
    packed.write_bytes(packed.read_bytes()[:100_000])
    with pytest.raises(UserError) as caught:
        mnist.load(str(tmp_path / "data"))
    assert all(part in str(caught.value) for part in (*NAMES, "data/MNIST/raw", "data=digits"))
    assert list((tmp_path / "data").iterdir()) == []


def test_fashion_mnist_from_debians_package_has_its_known_counts_and_mean(tmp_path):
    if not mnist.DEBIAN_FASHION.is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    source = mnist.load_fashion(str(tmp_path))
    assert source.pool.y.bincount().tolist() == [6000] * 10
    assert source.test.y.bincount().tolist() == [1000] * 10
    assert (source.pool.x.float() / 255).mean().item() == pytest.approx(0.2860, abs=5e-5)
    assert source.pool.y[:5].tolist() == [9, 0, 0, 3, 0]


def test_fashion_mnist_does_not_take_mnist_for_its_own(mnist_root, tmp_path):
    (tmp_path / "FashionMNIST").mkdir()
    (tmp_path / "FashionMNIST" / "raw").symlink_to(mnist_root / "MNIST" / "raw")
    with pytest.raises(DamagedError):
        mnist.load_fashion(str(tmp_path))
