"""CIFAR-10, python or binary version: 45,000 training, 5,000 validation, 10,000 test images."""

from pathlib import Path

import numpy as np
import torch
from torchvision.datasets import CIFAR10
from torchvision.datasets.utils import check_integrity

from lmsweep.data.dataset import Source, Split
from lmsweep.data.files import REMEDY, KnownFile, download
from lmsweep.files import DamagedError

VALIDATION_SIZE = 5000  # of the 50,000 that are published for training, as in the paper
BINARY_FOLDER = "cifar-10-batches-bin"

_IMAGE = 3 * 32 * 32
_BINARY = tuple(
    KnownFile(name, 10_000 * (1 + _IMAGE), sha)
    for name, sha in (
        ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
)


def load(root: str) -> Source:
    """CIFAR-10 from `cifar-10-batches-py` or `cifar-10-batches-bin` below `root`; the order is the same."""
    folder = Path(root)
    if _complete(folder / CIFAR10.base_folder, [name for name, _ in _python_files()]):
        pool, test = _read_python(folder)
    elif _complete(folder / BINARY_FOLDER, [file.name for file in _BINARY]):
        pool, test = _read_binary(folder / BINARY_FOLDER)
    else:
        download(
            lambda temporary: CIFAR10(temporary, download=True),
            folder,
            CIFAR10.base_folder,
            dataset="cifar10",
            files=f"data_batch_1 to 5, test_batch and batches.meta (or the binary version {BINARY_FOLDER})",
        )
        pool, test = _read_python(folder)
    return Source(pool, test, num_classes=10, validation_size=VALIDATION_SIZE)


def _python_files() -> list[tuple[str, str]]:
    meta = (CIFAR10.meta["filename"], CIFAR10.meta["md5"])
    return [(name, md5) for name, md5 in (*CIFAR10.train_list, *CIFAR10.test_list, meta)]


def _complete(folder: Path, names: list[str]) -> bool:
    return all((folder / name).is_file() for name in names)


def _read_python(root: Path) -> tuple[Split, Split]:
    try:
        parts = [CIFAR10(root, train=train) for train in (True, False)]
    except RuntimeError:  # torchvision compares checksums before it unpickles, but does not say which failed
        for name, md5 in _python_files():
            path = root / CIFAR10.base_folder / name
            if not check_integrity(path, md5):
                raise DamagedError(path, "its checksum is wrong", REMEDY) from None
        raise
    train, test = (_split(part.data.transpose(0, 3, 1, 2), part.targets) for part in parts)
    return train, test


def _read_binary(folder: Path) -> tuple[Split, Split]:
    # One byte of label, then red, green and blue, each by rows.
    contents = [np.frombuffer(file.read(folder / file.name), np.uint8) for file in _BINARY]
    *train, test = (content.reshape(-1, 1 + _IMAGE) for content in contents)
    pool = np.concatenate(train)
    return _split(pool[:, 1:], pool[:, 0]), _split(test[:, 1:], test[:, 0])


def _split(x: np.ndarray, y: np.ndarray | list[int]) -> Split:
    images = np.ascontiguousarray(x).reshape(-1, 3, 32, 32)
    return Split(torch.from_numpy(images), torch.as_tensor(np.asarray(y, dtype=np.int64)))
