"""MNIST and Fashion-MNIST from torchvision's folders: 55,000 training, 5,000 validation, 10,000 test."""

from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import Tensor

from lmsweep.data.dataset import Source, Split
from lmsweep.data.files import KnownFile, download

VALIDATION_SIZE = 5000  # of the 60,000 that are published for training, as in the paper
# Where Debian's package dataset-fashion-mnist puts its files.
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")

_NAMES = (
    ("train-images-idx3-ubyte", 47_040_016),
    ("train-labels-idx1-ubyte", 60_008),
    ("t10k-images-idx3-ubyte", 7_840_016),
    ("t10k-labels-idx1-ubyte", 10_008),
)
# Of the unpacked files, because torchvision keeps those and Debian packs them anew.
_MNIST = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)


def load(root: str) -> Source:
    """MNIST, from `MNIST/raw` below `root`."""
    return _load("mnist", torchvision.datasets.MNIST, _MNIST, Path(root))


def load_fashion(root: str) -> Source:
    """Fashion-MNIST, from `FashionMNIST/raw` below `root` or from Debian's package."""
    return _load("fashion_mnist", torchvision.datasets.FashionMNIST, _FASHION, Path(root), DEBIAN_FASHION)


def _load(
    dataset: str, published: type[torchvision.datasets.MNIST], sums: tuple[str, ...], root: Path, *more: Path
) -> Source:
    files = [KnownFile(name, size, sha) for (name, size), sha in zip(_NAMES, sums, strict=True)]
    folder = f"{published.__name__}/raw"
    places = [root / folder, *more]
    paths = [file.find(places) for file in files]
    if None in paths:
        download(
            lambda temporary: published(temporary, download=True),
            root,
            folder,
            dataset=dataset,
            files=f"{', '.join(name for name, _ in _NAMES)} (or these with .gz)",
        )
        paths = [file.find(places) for file in files]
    contents = [file.read(path) for file, path in zip(files, paths, strict=True) if path is not None]
    # Every byte of a file is known, and so is its form: 16 bytes stand before images, 8 before labels.
    train_x, test_x = (_bytes(content, 16).view(-1, 1, 28, 28) for content in contents[::2])
    train_y, test_y = (_bytes(content, 8).long() for content in contents[1::2])
    return Source(
        pool=Split(train_x, train_y),
        test=Split(test_x, test_y),
        num_classes=10,
        validation_size=VALIDATION_SIZE,
    )


def _bytes(content: bytes, start: int) -> Tensor:
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).copy())
