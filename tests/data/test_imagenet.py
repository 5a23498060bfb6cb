"""ImageNet's layout: val is the test set, validation is held out of train, and a run trains on it."""

import json
import shutil

import pytest

from lmsweep.data import imagenet, prepare
from lmsweep.errors import UserError
from tests.data.pictures import write_folder


def load(root, **changes):
    options = {
        "folder": "imagenet",
        "size": 75,
        "validation_size": 6,
        "area": [0.08, 1],
        "ratio": [0.75, 1.33],
    }
    return imagenet.load(str(root), **(options | changes))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_folder(root / "imagenet")
    return root


def test_the_published_validation_set_is_the_test_set(root):
    source = load(root)
    data = prepare(source, seed=0)
    assert [len(part) for part in (data.train, data.val, data.test)] == [24, 6, 12]
    assert data.num_classes == 3
    assert data.input_shape == (3, 75, 75)
    assert all("/val/" in file for file in data.test.files)
    assert all("/train/" in file for file in [*data.train.files, *data.val.files])
    assert not set(data.train.files) & set(data.val.files)
    for file, label in zip(data.train.files, data.train.y, strict=True):
        assert f"/n0{int(label) + 1}/" in file


def test_missing_folders_and_other_classes_are_named(root, tmp_path):
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    sentence = str(caught.value)
    assert all(
        part in sentence for part in (str(tmp_path / "imagenet" / "train"), "LMSWEEP_DATA", "data=digits")
    )
    shutil.copytree(root / "imagenet", tmp_path / "imagenet")
    shutil.rmtree(tmp_path / "imagenet" / "val" / "n02")
    with pytest.raises(UserError, match="differ in their classes: n02"):
        load(tmp_path)


@pytest.mark.parametrize("size", [0, 30])
def test_a_validation_set_that_leaves_nothing_is_refused(root, size):
    with pytest.raises(UserError, match="less than the 30 images"):
        load(root, validation_size=size)


@pytest.mark.slow
def test_a_small_inception_trains_on_it_with_the_margin_loss(root, lmsweep_command, tmp_path):
    done = lmsweep_command(
        "data=imagenet",
        "data.source.size=75",
        "data.source.validation_size=6",
        "data.workers=1",
        "model=inception_v3",
        "model.width=0.0625",
        "method=margin",
        "margin.norm=1",
        "margin.layers=even:4",
        "margin.top_k=1",
        "optimizer=rmsprop",
        "trainer.max_steps=4",
        "trainer.val_every=2",
        "trainer.batch_size=8",
        "trainer.log_every=4",
        outputs=tmp_path,
        LMSWEEP_DATA=str(root),
    )
    assert done.returncode == 0, done.stderr
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    results = json.loads((run / "results.json").read_text())
    assert results["data"]["train_size"] == 24
    assert results["metrics"]["steps"] == 4
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (loss,) = (line["train_loss"] for line in lines if "train_loss" in line)
    assert 0 < loss < 1000
