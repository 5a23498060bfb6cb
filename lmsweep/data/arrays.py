"""A data set of your own as one file, by `numpy.savez("faces.npz", x=..., y=..., x_test=..., y_test=...)`."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lmsweep.data.dataset import Source, Split
from lmsweep.errors import UserError

ARRAYS = ("x", "y", "x_test", "y_test")
CHANNELS = (1, 3, 4)  # that an image may have


def load(root: str, file: str, validation_size: int) -> Source:
    """The arrays of `file` below `root`; `validation_size` of x and y are held out, by the seed.

    Images are uint8 (0 to 255) or floats in [0, 1], without channels, with channels first, or plain vectors;
    classes are counted from 0, without gaps.
    """
    path = Path(root) / file
    x, y, x_test, y_test = _read(path)
    if len(x) != len(y) or len(x_test) != len(y_test) or x.shape[1:] != x_test.shape[1:]:
        shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(ARRAYS, (x, y, x_test, y_test), strict=True))
        raise UserError(f"{path} has arrays that do not fit together: {shapes}; write it again.")
    pool = Split(_images(path, "x", x), _classes(path, "y", y))
    test = Split(_images(path, "x_test", x_test), _classes(path, "y_test", y_test))
    if not 0 < validation_size < len(y):
        raise UserError(
            f"data.source.validation_size={validation_size} is not allowed: it must be between 1 and "
            f"{len(y) - 1}, because x in {path} has {len(y)} samples; change it in the file of the data set."
        )
    return Source(pool, test, _number_of_classes(path, y, y_test), validation_size)


def _read(path: Path) -> list[np.ndarray]:
    try:
        with np.load(path) as arrays:  # without pickles, so that a file can only hold numbers
            missing = [name for name in ARRAYS if name not in arrays]
            if missing:
                raise UserError(
                    f"{path} has no array {', '.join(missing)}; it must have {', '.join(ARRAYS)}."
                )
            return [arrays[name] for name in ARRAYS]
    except FileNotFoundError:
        raise UserError(f"{path} is missing: put it there, or set LMSWEEP_DATA to its folder.") from None
    except ValueError:  # numpy's own sentence advises to load pickles, which can run code
        raise UserError(
            f"{path} holds something else than arrays of numbers: write it by numpy.savez."
        ) from None
    except (OSError, zipfile.BadZipFile, AttributeError) as error:
        raise UserError(f"{path} is no file of numpy.savez ({error}); write it again.") from None


def _images(path: Path, name: str, values: np.ndarray) -> Tensor:
    if not values.size or values.ndim < 2:
        raise UserError(f"{name} in {path} has the shape {values.shape}: it must hold at least one image.")
    if values.ndim == 4 and values.shape[3] in CHANNELS and values.shape[1] not in CHANNELS:
        raise UserError(
            f"{name} in {path} has the shape {values.shape}, with channels last: they must come first, as "
            f"{name}.transpose(0, 3, 1, 2) has them."
        )
    if values.dtype != np.uint8:
        values = values.astype(np.float32)
        if np.isnan(values).any():
            raise UserError(f"{name} in {path} has values that are no numbers (NaN): replace them.")
        if not (values.min() >= 0 and values.max() <= 1):
            raise UserError(
                f"{name} in {path} has values outside [0, 1]: scale them, or store uint8 (0 to 255)."
            )
    images = torch.from_numpy(values)
    return images.unsqueeze(1) if images.ndim == 3 else images


def _classes(path: Path, name: str, values: np.ndarray) -> Tensor:
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.min() < 0:
        raise UserError(f"{name} in {path} must be one list of whole numbers from 0, the classes.")
    return torch.from_numpy(values.astype(np.int64))


def _number_of_classes(path: Path, y: np.ndarray, y_test: np.ndarray) -> int:
    """The number of classes, which are counted without gaps: a class that nothing has can only mislead."""
    classes = np.union1d(y, y_test)
    gaps = np.flatnonzero(classes != np.arange(len(classes)))
    if len(gaps):
        raise UserError(
            f"y in {path} has {len(classes)} classes, and {classes[gaps[0]]} among them, but not {gaps[0]}: "
            "classes must be counted from 0 without gaps, as numpy.unique(y, return_inverse=True)[1] does."
        )
    return len(classes)
