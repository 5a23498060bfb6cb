"""ImageNet, or any folder of images by class: `train/<class>/*` and `val/<class>/*`, read while training."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from lmsweep.data.dataset import Batch, Index, Source, Split
from lmsweep.errors import UserError
from lmsweep.seeds import ALL, Share, derive_seed


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
        StreamedSplit([path for path, _ in part.samples], torch.tensor(part.targets), cropping, workers)
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


# Evaluation sees the middle 87.5% of an image, as Inception's own does.
CENTRAL_FRACTION = 0.875
READ_BATCH = 64


@dataclass(frozen=True)
class Cropping:
    """How an image of any size becomes a square of `size` pixels.

    Training cuts out a part of random area and shape (Szegedy et al., 2014: 8% to 100% of the area, sides
    from 3:4 to 4:3); `area=None` trains on the middle, as evaluation always does.
    """

    size: int
    area: tuple[float, float] | None = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __call__(self, image: Image.Image, seed: int | None) -> Tensor:
        """The square as uint8 (3, size, size); `seed` draws a random one, None takes the middle."""
        if seed is None or self.area is None:
            resize = v2.Resize(round(self.size / CENTRAL_FRACTION))
            return v2.functional.pil_to_tensor(v2.CenterCrop(self.size)(resize(image)))
        # torchvision draws from the global generator, which belongs to dropout.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            crop = v2.RandomResizedCrop(self.size, scale=self.area, ratio=self.ratio)
            return v2.functional.pil_to_tensor(crop(image))


_Request = tuple[int, int | None]  # which file, and the seed of its crop


@dataclass(eq=False)
class StreamedSplit(Split, TorchDataset):
    """Image files and their labels. A batch is the same for any number of workers."""

    files: Sequence[str] | np.ndarray
    y: Tensor
    cropping: Cropping
    workers: int = 0
    device: torch.device | str = "cpu"

    @property
    def x(self) -> Tensor:  # type: ignore[override]
        """All images at once, as evaluation sees them; meant for small parts of a split."""
        parts = (slice(start, start + READ_BATCH) for start in range(0, len(self), READ_BATCH))
        return torch.cat([x for x, _ in self.read(parts)])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image after cropping."""
        return (3, self.cropping.size, self.cropping.size)

    def select(self, indices: Tensor, labels: Tensor | None = None) -> "StreamedSplit":
        """The samples at `indices`, with other labels when these are given; nothing is read."""
        files = np.asarray(self.files)[indices.numpy()]
        return replace(self, files=files, y=self.y[indices] if labels is None else labels)

    def to(self, device: torch.device | str) -> "StreamedSplit":
        """The same samples, with their batches on `device`."""
        return replace(self, device=device)

    def read(
        self, indices: Iterable[Index], *, seed: int | None = None, start: int = 0, share: Share = ALL
    ) -> Iterator[Batch]:
        """Batches of uint8 images; with a seed, random crops that depend on it and the place in a batch.

        `start` is the number of the first batch, and `share` says which part of each `indices` are.
        """
        loader = DataLoader(
            self,
            batch_sampler=self._requests(indices, seed, start, share),
            num_workers=self.workers,
            collate_fn=_as_read,
            pin_memory=torch.device(self.device).type == "cuda",
            generator=torch.Generator(),  # else the loader draws from the global generator, as dropout does
        )
        for batch in loader:
            if isinstance(batch, UserError):
                raise batch
            x, y = batch
            yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)

    def _requests(
        self, indices: Iterable[Index], seed: int | None, start: int, share: Share
    ) -> Iterator[list[_Request]]:
        for number, chosen in enumerate(indices, start):
            members = range(*chosen.indices(len(self))) if isinstance(chosen, slice) else chosen.tolist()
            places = [share.position(index) for index in range(len(members))]
            crops = [None if seed is None else derive_seed(seed, f"crop/{number}/{p}") for p in places]
            yield list(zip(members, crops, strict=True))

    def __getitems__(self, requests: list[_Request]) -> Batch | UserError:
        """One batch, which torch's loader asks for, in a process of its own where there are workers."""
        images = []
        for index, seed in requests:
            path = Path(self.files[index])
            try:
                with Image.open(path) as image:
                    images.append(self.cropping(image.convert("RGB"), seed))
            except (OSError, SyntaxError) as error:  # Pillow's words for files cut short or no images
                # Returned, because an exception that crosses a process carries its traceback as the message.
                return UserError(f"{path} cannot be read as an image ({error}): replace or remove it.")
        return torch.stack(images), self.y[[index for index, _ in requests]]


def _as_read(batch: Any) -> Any:
    return batch  # `__getitems__` has made it, so there is nothing to collate
