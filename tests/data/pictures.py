"""A small folder of images as ImageNet's is laid out: of several sizes, kinds and colour modes."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, colour: tuple[int, int, int], size: tuple[int, int], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-40, 40, (size[1], size[0], 3))
    pixels = (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    path.parent.mkdir(parents=True, exist_ok=True)
    (image.convert("L") if seed % 5 == 4 else image).save(path)


def write_folder(root: Path, *, train: int = 10, val: int = 4) -> Path:
    """`train` and `val` images per class, in three classes of different colours."""
    colours = {"n01": (200, 40, 40), "n02": (40, 200, 40), "n03": (40, 40, 200)}
    for part, count in (("train", train), ("val", val)):
        for name, colour in colours.items():
            for number in range(count):
                size = (90 + 11 * number % 70, 80 + 17 * number % 60)
                suffix = "png" if number % 2 else "JPEG"
                write_image(root / part / name / f"{name}_{number}.{suffix}", colour, size, number)
    return root
