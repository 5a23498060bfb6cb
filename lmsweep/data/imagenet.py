"""ImageNet, or any folder of images by class: `train/<class>/*` and `val/<class>/*`, read while training."""

from pathlib import Path

import torch
from torchvision.datasets import ImageFolder

from lmsweep.data.dataset import Source
from lmsweep.data.stream import Cropping, StreamedSplit
from lmsweep.errors import UserError


def load(
    root: str,
    *,
    folder: str,
    size: int,
    validation_size: int,
    area: list[float] | None,
    ratio: list[float],
    workers: int = 0,
) -> Source:
    """Return the images of `folder` below `root`, cropped to `size`.

    The published validation set (`val`) is the test set, as in the paper; `validation_size` images of `train`
    are held out to choose weights by, so that the choice never sees a test image.
    """
    for name, pair in (("area", area or [1, 1]), ("ratio", ratio)):
        if len(pair) != 2 or not 0 < pair[0] <= pair[1]:
            raise ValueError(f"{name} must be two numbers > 0, the smaller one first")
    if size < 1 or (area and area[1] > 1):
        raise ValueError("size must be at least 1, and area at most the whole image, 1")
    place = Path(root) / folder
    cropping = Cropping(size, (area[0], area[1]) if area else None, (ratio[0], ratio[1]))
    train, test = _listing(place / "train"), _listing(place / "val")
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise UserError(
            f"{place / 'train'} and {place / 'val'} differ in their classes: {', '.join(odd[:5])}."
        )
    if not 0 < validation_size < len(train.samples):
        raise UserError(
            f"data.source.validation_size={validation_size} is not allowed: it must be at least 1 and less "
            f"than the {len(train.samples)} images in {place / 'train'}; change it on the command line."
        )
    pool, fixed = (
        StreamedSplit(
            [path for path, _ in part.samples], torch.tensor(part.targets), cropping, workers=workers
        )
        for part in (train, test)
    )
    return Source(pool, fixed, len(train.classes), validation_size)


def _listing(folder: Path) -> ImageFolder:
    try:
        return ImageFolder(str(folder))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"data=imagenet needs images in {folder}/<class>/, one folder per class (ImageNet cannot be "
            "downloaded freely): put them there, name the folder above by LMSWEEP_DATA or data.root, or use "
            "data=digits, which needs none."
        ) from None
