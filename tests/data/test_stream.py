"""Images on disk: the same batches for any number of workers, and files that cannot be read are named."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from lmsweep.data import EvaluationBatches, TrainingBatches, prepare
from lmsweep.data.dataset import Source
from lmsweep.data.imagenet import Cropping, StreamedSplit
from lmsweep.errors import UserError
from lmsweep.seeds import Share
from tests.data.pictures import write_image


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("images")
    for number in range(10):
        size = (60 + 3 * number, 70 - 2 * number)
        write_image(folder / f"{number}.png", (25 * number, 128, 255 - 25 * number), size, number)
    return [str(folder / f"{number}.png") for number in range(10)]


def split(files: list[str], workers: int = 0, size: int = 32) -> StreamedSplit:
    return StreamedSplit(files, torch.arange(len(files)), Cropping(size), workers=workers)


def test_evaluation_takes_the_middle_of_the_scaled_image(files):
    streamed = split(files)
    batches = list(EvaluationBatches(streamed, 4))
    assert [len(y) for _, y in batches] == [4, 4, 2]
    for number, image in enumerate(torch.cat([x for x, _ in batches])):
        picture = Image.open(files[number]).convert("RGB")
        short = 37  # 32 pixels are 87.5% of the shorter side
        scale = short / min(picture.size)
        width, height = (int(side * scale) for side in picture.size)
        small = picture.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - 32) / 2), round((height - 32) / 2)
        expected = np.asarray(small.crop((left, top, left + 32, top + 32))) / 255
        assert np.abs(image.permute(1, 2, 0).numpy() - expected).max() < 1e-6
    assert streamed.x.dtype == torch.uint8
    assert torch.equal(streamed.x.float() / 255, torch.cat([x for x, _ in batches]))


def test_training_crops_are_torchvisions_and_new_in_every_batch(files):
    stream = TrainingBatches(split(files), 10, seed=3)
    first, second = islice(stream, 2)
    assert sorted(first[1].tolist()) == list(range(10))
    by_label = [dict(zip(y.tolist(), x, strict=True)) for x, y in (first, second)]
    assert not any(torch.equal(by_label[0][label], by_label[1][label]) for label in range(10))
    torch.manual_seed(11)
    picture = Image.open(files[1]).convert("RGB")
    expected = v2.functional.pil_to_tensor(
        v2.RandomResizedCrop(32, scale=(0.08, 1), ratio=(3 / 4, 4 / 3))(picture)
    )
    assert torch.equal(Cropping(32)(picture, seed=11), expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_the_batches(files, workers):
    alone = list(islice(TrainingBatches(split(files), 4, seed=3), 6))
    helped = list(islice(TrainingBatches(split(files, workers), 4, seed=3), 6))
    for (x, y), (x_again, y_again) in zip(alone, helped, strict=True):
        assert torch.equal(x, x_again)
        assert torch.equal(y, y_again)


def test_a_stream_goes_on_where_another_stopped_and_leaves_the_global_generator_alone(files):
    before = torch.get_rng_state()
    whole = list(islice(TrainingBatches(split(files), 4, seed=3), 7))
    rest = list(islice(TrainingBatches(split(files), 4, seed=3, start=4), 3))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[4:], rest, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_random_crops_training_sees_what_evaluation_sees(files):
    streamed = StreamedSplit(files, torch.arange(10), Cropping(32, area=None))
    x, y = next(iter(TrainingBatches(streamed, 10, seed=0)))
    assert torch.equal(x[y.argsort()], streamed.x.float() / 255)


def test_preparing_a_streamed_source_is_like_any_other(files):
    source = Source(split(files), split(files[:3]), num_classes=10, validation_size=2)
    data = prepare(source, seed=1, fraction=0.5, label_noise=0.5)
    assert [len(part) for part in (data.train, data.val, data.test)] == [4, 2, 3]
    assert data.fingerprint["flipped"] == 2
    assert data.input_shape == (3, 32, 32)
    (x, y), *_ = EvaluationBatches(data.train, 10)
    originals = [files.index(file) for file in data.train.files]
    assert torch.equal(x, split(files).x[originals].float() / 255)
    assert torch.equal(y, data.train.y)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["cut short", "no image", "gone"])
def test_a_file_that_cannot_be_read_stops_with_its_name(files, tmp_path, workers, damage):
    bad = tmp_path / "bad.png"
    content = Path(files[3]).read_bytes()
    if damage != "gone":
        bad.write_bytes(content[: len(content) // 2] if damage == "cut short" else b"hello")
    with pytest.raises(UserError) as caught:
        list(EvaluationBatches(split([*files[:2], str(bad)], workers), 2))
    assert str(bad) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_shares_of_a_batch_are_cropped_like_the_batch(files):
    whole = next(iter(TrainingBatches(split(files), 6, seed=1, start=2)))
    for rank in range(2):
        share = Share(rank, 2)
        part = next(iter(TrainingBatches(split(files), 6, seed=1, start=2, share=share)))
        assert torch.equal(part[0], share.of(whole[0]))
        assert torch.equal(part[1], share.of(whole[1]))
