"""Whole-batch augmentation against torchvision's operations on single images."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms.v2 import functional as V

from lmsweep.data import Augmentation
from lmsweep.data.augment import brightness, contrast, hue, saturation, shifted

CLOSE = {"rtol": 1e-5, "atol": 2e-6}


def images(count: int = 12, channels: int = 3, size: int = 9, seed: int = 0) -> torch.Tensor:
    x = torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(seed))
    x[0] = 0.0
    x[1] = 1.0
    x[2] = 0.5  # without colour, where hue has no meaning
    x[3, 1:] = 0.0  # pure red
    return x


@pytest.mark.parametrize(
    ("ours", "reference", "low", "high"),
    [
        (brightness, V.adjust_brightness, 0.0, 2.0),
        (contrast, V.adjust_contrast, 0.0, 2.0),
        (saturation, V.adjust_saturation, 0.0, 2.0),
        (hue, V.adjust_hue, -0.5, 0.5),
    ],
)
def test_colour_changes_are_torchvisions(ours, reference, low, high):
    x = images()
    amounts = torch.linspace(low, high, len(x))
    expected = torch.stack([reference(image, float(a)) for image, a in zip(x, amounts, strict=True)])
    torch.testing.assert_close(ours(x, amounts), expected, **CLOSE)


def test_contrast_of_gray_images_is_torchvisions():
    x = images(channels=1)
    expected = torch.stack([V.adjust_contrast(image, 0.6) for image in x])
    torch.testing.assert_close(contrast(x, torch.full((len(x),), 0.6)), expected, **CLOSE)


@given(st.floats(-0.5, 0.5), st.integers(0, 100))
@settings(max_examples=30)
def test_hue_keeps_the_range_of_every_pixel_and_turns_back(turn, seed):
    x = images(seed=seed)
    turns = torch.full((len(x),), turn)
    turned = hue(x, turns)
    torch.testing.assert_close(turned.amax(1), x.amax(1), **CLOSE)
    torch.testing.assert_close(turned.amin(1), x.amin(1), **CLOSE)
    torch.testing.assert_close(hue(turned, -turns), x, rtol=0, atol=1e-4)


def test_a_third_of_a_turn_moves_every_channel_on():
    x = images()
    third = torch.full((len(x),), 1 / 3)
    torch.testing.assert_close(hue(x, third), x.roll(1, dims=1), rtol=0, atol=1e-5)


def test_crops_are_windows_of_the_padded_image():
    x = images(count=5, size=6)
    offsets = torch.tensor([[0, 0], [2, 2], [4, 4], [1, 3], [3, 0]])
    padded = F.pad(x, (2, 2, 2, 2))
    result = shifted(x, offsets, pad=2)
    for image, (row, column), whole in zip(result, offsets.tolist(), padded, strict=True):
        assert torch.equal(image, whole[:, row : row + 6, column : column + 6])
    assert torch.equal(result[1], x[1])


def test_every_crop_and_both_sides_come_about_equally_often():
    count = 5000
    ramp = torch.arange(1.0, 10.0).view(1, 1, 3, 3).expand(count, 1, 3, 3) / 10
    cropped = Augmentation(pad=1)(ramp, seed=0)
    kinds = torch.unique(cropped.flatten(1), dim=0, return_counts=True)[1]
    assert len(kinds) == 9
    assert kinds.min() > 450  # of 556, with a standard deviation of 22
    assert kinds.max() < 660
    flipped = Augmentation(flip=True)(ramp, seed=0)
    share = (flipped[:, 0, 0, 0] == ramp[0, 0, 0, 2]).float().mean()
    assert 0.46 < share < 0.54
    assert set(flipped[:, 0, 0, 0].tolist()) == {ramp[0, 0, 0, 0].item(), ramp[0, 0, 0, 2].item()}


def test_amounts_are_spread_over_the_range_asked_for():
    x = torch.full((4000, 3, 2, 2), 0.4)
    factors = Augmentation(brightness=0.5)(x, seed=1)[:, 0, 0, 0] / 0.4
    assert 0.5 <= factors.min() < 0.51
    assert 1.49 < factors.max() <= 1.5
    assert factors.mean() == pytest.approx(1, abs=0.03)


def test_one_change_leaves_the_draws_of_the_others_alone():
    x = images(count=30, size=8)
    both = Augmentation(pad=2, flip=True)(x, seed=3)
    alone = Augmentation(pad=2)(x, seed=3)
    either = (both == alone).flatten(1).all(1) | (both == alone.flip(-1)).flatten(1).all(1)
    assert either.all()
    assert not torch.equal(both, alone)


def test_the_default_changes_nothing_and_bytes_come_out_as_pixels():
    x = images()
    assert torch.equal(Augmentation()(x, seed=0), x)
    raw = (x * 255).to(torch.uint8)
    everything = Augmentation(pad=2, flip=True, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.2)
    result = everything(raw, seed=0)
    torch.testing.assert_close(result, everything(raw.float() / 255, seed=0), **CLOSE)
    assert result.dtype == torch.float32
    assert result.shape == x.shape
    assert 0 <= result.min() <= result.max() <= 1


def test_what_does_not_fit_the_images_is_refused():
    Augmentation().check((2,))
    Augmentation(pad=1, contrast=0.1).check((1, 8, 8))
    with pytest.raises(ValueError, match="not images"):
        Augmentation(flip=True).check((2,))
    with pytest.raises(ValueError, match="3 channels"):
        Augmentation(hue=0.1).check((1, 8, 8))
