"""A data set in a file below data.root: as much of the digits as the tests need."""

from pathlib import Path

import torch

from lmsweep.data import Source, Split, digits

FILE = "tiny.pt"


def write(root: Path) -> None:
    source = digits.load()
    root.mkdir(parents=True)
    torch.save(
        [source.pool.x[:400], source.pool.y[:400], source.test.x[:80], source.test.y[:80]], root / FILE
    )


def load(root: str) -> Source:
    x, y, test_x, test_y = torch.load(Path(root) / FILE)
    return Source(Split(x, y), Split(test_x, test_y), num_classes=10, validation_size=100)
